"""Runs for the tests of tools/report.py, and the page that it writes as a parser sees it."""

import html.parser
import json
import math
import os

from logs import LogTestCase, run_tool

FIGURES = {
    "loss",
    "loss-late",
    "difference",
    "lr",
    "grad_norm",
    "tokens_per_s",
    "mfu",
    "memory",
    "heat-forward",
    "heat-backward",
    "operations",
    "roofline",
}
VOID = {"meta", "link", "br"}


def record(step, loss, **changes):
    return {
        "step": step,
        "loss": loss,
        "grad_norm": 1 + 1 / step,
        "lr": 1e-3 / step,
        "tokens": 64 * step,
        "ms": 2.0,
        "tokens_per_s": 32000.0 + step,
        "mfu": 0.4,
        "memory_gib": 0.5,
        **changes,
    }


def timed(name, ms, layer=-1, phase="forward", pass_="first micro-batch", flops=2e9, bytes_=1e8, op="Op"):
    return {
        "pass": pass_,
        "phase": phase,
        "layer": layer,
        "name": name,
        "op": op,
        "calls": 7,
        "median_ms": ms,
        "flops": flops,
        "bytes": bytes_,
    }


STEPS = [
    timed("embed", 0.5, flops=1e6),
    *(timed("qkv", 1.0 + layer, layer) for layer in range(3)),
    *(timed("qkv_dgrad", 2.0, layer, "backward") for layer in (2, 1, 0)),
    timed("qkv", 5.0, 0, pass_="further micro-batch"),
    timed("zero", 0.1, phase="backward", flops=0.0),
    timed("adamw", 4.0, phase="update", pass_="update"),
    timed("qkv", 100.0, 0, pass_="evaluate"),
]
PLAN = {
    "parameters": 1000,
    "arena_bytes": 10000,
    "segments": [{"name": "weights", "bytes": 4000}, {"name": "activations and work space", "bytes": 6000}],
}


class Balance(html.parser.HTMLParser):
    """Every element that opens closes; the ids; what the page would load."""

    def __init__(self, content):
        super().__init__()
        self.open, self.ids, self.loads = [], [], []
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.loads += [value for key, value in attrs if key in ("src", "href", "srcset", "data") and value != "data:,"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes another element")


class ReportCase(LogTestCase):
    def run_folder(self, name="run", count=200, offset=0.0, plan=PLAN, steps=STEPS, extra=()):
        os.mkdir(self.path(name))
        records = [record(step, 2 + 3 / step + 0.05 * math.sin(step) + offset) for step in range(1, count + 1)]
        for step in range(50, count + 1, 50):
            records.insert(
                records.index(next(r for r in records if r["step"] == step)) + 1,
                {"step": step, "val_loss": 2.1 + 3 / step + offset},
            )
        self.write(f"{name}/log.jsonl", [*records, *extra])
        for file, content in (
            ("plan.json", plan),
            ("timing.json", steps and {"header": {"device": "cpu"}, "steps": steps}),
        ):
            if content:
                with open(self.path(f"{name}/{file}"), "w", encoding="utf-8") as stream:
                    json.dump(content, stream)
        return self.path(name)

    def report(self, *arguments):
        status, out, err = run_tool("report.py", *arguments)
        self.assertEqual((status, err), (0, ""))
        with open(out.strip(), encoding="utf-8") as file:
            return out.strip(), file.read()
