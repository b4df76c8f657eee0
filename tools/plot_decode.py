#!/usr/bin/env python3
"""Draws one layer of a step of the fused decode kernel: what each SM does when, from a trace of coda_bench decode.

    coda_bench decode --models 1B --batches 1 --contexts 256 --trace decode.trace.json
    tools/plot_decode.py decode.trace.json --layer 8

A line is an SM: its consumer warps, which multiply, in the upper half, its epilogue warps in the lower. Colour is work
in an op, from a warp's input on until the warp is done; white is waiting. A dashed line is the last result of an op.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys

import plotting

OPS = ("qkv", "attention", "attn_out", "gate_up", "down")


class TraceError(Exception):
    """The trace cannot be read; the message says why."""


def read(path: str) -> list[dict]:
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
                 if event["ph"] == "M" and event["name"] == "thread_name"}
        return [{"sm": event["pid"], "warp": names[event["pid"], event["tid"]], "kind": event["cat"],
                 "op": event["args"]["op"], "from": event["ts"], "to": event["ts"] + event["dur"]}
                for event in events if event["ph"] == "X" and event["name"] == event["cat"]]
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path} is not a trace of coda_bench decode: {type(error).__name__}, {error}") from None


def of_layer(work: list[dict], layer: int, path: str) -> list[dict]:
    starts = sorted({event["op"] for event in work if event["kind"] == OPS[0]})
    if layer not in range(len(starts)):
        raise TraceError(f"{path} has no layer {layer}: they are 0 to {len(starts) - 1}")
    found = [event for event in work if event["op"] in range(starts[layer], starts[layer] + len(OPS))]
    kinds = [event["kind"] for event in sorted(found, key=lambda event: event["op"])]
    if list(dict.fromkeys(kinds)) != list(OPS):
        raise TraceError(f"{path}: the ops of layer {layer} are not {', '.join(OPS)}")
    return found


def draw(work: list[dict], out: str, title: str) -> None:
    plt = plotting.pyplot()
    figure, halves = plt.subplots(2, 1, figsize=(12, 10), sharex=True, layout="constrained")
    zero = min(event["from"] for event in work)
    for kind, colour in zip(OPS, plotting.COLOURS):
        end = max(event["to"] for event in work if event["kind"] == kind) - zero
        for axes, role in zip(halves, ("consumer", "epilogue")):
            spans = collections.defaultdict(list)
            for event in work:
                if event["kind"] == kind and event["warp"].startswith(role):
                    spans[event["sm"]].append((event["from"] - zero, event["to"] - event["from"]))
            for sm, bars in spans.items():
                axes.broken_barh(bars, (sm, 0.8), color=colour, linewidth=0, alpha=0.8)
            axes.axvline(end, color=colour, linestyle="--", linewidth=1)
        halves[0].text(end, 1.01, f"{kind} {end:.1f}", transform=halves[0].get_xaxis_transform(), color=colour,
                       fontsize=9, rotation=30, ha="left", va="bottom")
    for axes, role in zip(halves, ("consumer", "epilogue")):
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.01, y=0.005)
        axes.set_ylabel(f"SM, {role} warps")
    halves[1].set_xlabel("microseconds")
    halves[0].set_title(title, pad=44)
    plotting.save(figure, out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", metavar="TRACE", help="of coda_bench decode --trace")
    parser.add_argument("--layer", type=int, default=0, metavar="N", help="from 0 on (default: 0)")
    parser.add_argument("--out", help="the picture: .png, .svg or .pdf (default: the trace's name with .png)")
    parser.add_argument("--title", help="default: the layer")
    arguments = parser.parse_args()

    def picture() -> str:
        work = of_layer(read(arguments.trace), arguments.layer, arguments.trace)
        out = arguments.out or os.path.splitext(arguments.trace)[0] + ".png"
        draw(work, out, arguments.title or f"Layer {arguments.layer} of a step of the fused decode kernel")
        return out

    return plotting.run("plot_decode.py", picture, TraceError)


if __name__ == "__main__":
    sys.exit(main())
