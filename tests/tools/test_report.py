"""tools/report.py: what it reads, the numbers of its figures, and what the page holds."""

import html
import html.parser
import json
import os
import re
import subprocess
import unittest

from logs import TOOLS, LogTestCase, run_tool
from report_runs import PLAN, STEPS, Balance, FIGURES, ReportCase, record, timed

import runlog
from report import curves, heatmap, memory, page, roofline, scale, timing

PROGRAM = os.path.join(TOOLS, "..", "build", "cpu", "bin", "coda_train")


class ScaleTest(unittest.TestCase):
    def test_linear_ticks(self):
        self.assertEqual(scale.linear_ticks(0, 10, 5), [0, 2, 4, 6, 8, 10])
        self.assertEqual(scale.linear_ticks(-0.013, 0.021, 4), [-0.01, 0, 0.01, 0.02])
        self.assertEqual(scale.linear_ticks(1.9, 5.6, 4), [2, 3, 4, 5])

    def test_log_ticks(self):
        self.assertEqual(scale.log_ticks(0.5, 2e3, 6), [1, 10, 100, 1000])
        self.assertEqual(scale.log_ticks(3, 30, 6), [5, 10, 20])
        self.assertEqual(len(scale.log_ticks(1, 1e12, 5)), 5)

    def test_positions(self):
        x = scale.Scale(1, 100, 0, 200, log=True)
        self.assertEqual([x(1), x(10), x(100)], [0, 100, 200])
        y = scale.Scale(2, 4, 100, 0)
        self.assertEqual([y(2), y(3), y(4)], [100, 50, 0])

    def test_numbers(self):
        for value, text in (
            (1.88530, "1.8853"),
            (0, "0"),
            (3e-5, "3e-5"),
            (1234567, "1,234,567"),
            (0.1, "0.1"),
            (-2.5e-4, "-2.5e-4"),
            (None, "not finite"),
        ):
            self.assertEqual(scale.number(value), text)
        self.assertEqual([scale.si(v) for v in (999, 1000, 35100, 1.97e11)], ["999", "1k", "35.1k", "197G"])
        self.assertEqual(scale.with_unit(1.97e11, "B/s"), "197 GB/s")
        self.assertEqual(scale.with_unit(12, "B/s"), "12 B/s")
        self.assertEqual([scale.in_bytes(v) for v in (12, 1536, 3 * 2**30)], ["12 B", "1.5 KiB", "3 GiB"])


class CurveTest(unittest.TestCase):
    def test_groups_of_a_long_run(self):
        series = {step: None if step == 5000 else float(step % 10) for step in range(1, 10001)}
        found = curves.buckets_of(series)
        self.assertLessEqual(len(found.steps), curves.BUCKETS)
        self.assertEqual(found.lost, [5000])
        self.assertEqual((min(found.low), max(found.high)), (0.0, 9.0))
        groups = [list(series.values())[i : i + 9] for i in range(0, 10000, 9)]
        self.assertEqual(len(found.means), len(groups))
        for mean, group in zip(found.means, groups):
            values = [value for value in group if value is not None]
            self.assertAlmostEqual(mean, sum(values) / len(values))

    def test_gap_and_cross(self):
        series = {1: 1.0, 2: 2.0, 3: None, 4: 2.0, 5: 1.0}
        drawn = curves.draw([curves.Curve("a", series, "training")], curves.Look("y"), 400, 200, "label")
        line = re.search(r'<path d="([^"]*)" class="curve training">', drawn)[1]
        self.assertEqual(line.count("M"), 2)
        self.assertEqual(drawn.count('class="curve lost training"'), 1)

    def test_heights(self):
        """A curve's ends lie where the axis says."""
        drawn = curves.draw(
            [curves.Curve("a", {0: 0.0, 10: 4.0}, "training")], curves.Look("y", zero=True), 400, 200, "l"
        )
        x1, y1, x2, y2 = map(float, re.search(r'd="M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)"', drawn).groups())
        hover = json.loads(html.unescape(re.search(r'data-hover="([^"]*)"', drawn)[1]))
        low, high, start, end, _ = hover["y"]
        self.assertEqual(low, 0)
        self.assertAlmostEqual((y1 - start) / (end - start) * (high - low), 0.0, delta=0.05)
        self.assertAlmostEqual((y2 - start) / (end - start) * (high - low), 4.0, delta=0.05)
        self.assertEqual([x1, x2], hover["x"][2:])

    def test_any_values(self):
        """Nothing finite, one value, all the same: drawn without an error."""
        for values in ((None, None), (1.0,), (2.0, 2.0), (0.0, 0.0), (1e-30, 1e30), (-1.0, 1.0)):
            for log in (False, min((v or 0) for v in values) > 0):
                series = dict(enumerate(values))
                curves.draw(
                    [curves.Curve("a", series, "training", noisy=True)], curves.Look("y", log=log), 400, 200, "l"
                )

    def test_log_axis_for_spikes_alone(self):
        self.assertTrue(curves.wants_log({1: 1.0, 2: 1.1, 3: 1.2, 4: 90.0}))
        self.assertFalse(curves.wants_log({1: 5.0, 2: 1.0, 3: 0.9}))
        self.assertFalse(curves.wants_log({1: 0.0, 2: 1.0, 3: 90.0}))


class MemoryTest(unittest.TestCase):
    def bar(self, **segments):
        plan = {
            "arena_bytes": sum(segments.values()),
            "segments": [{"name": n, "bytes": b} for n, b in segments.items()],
        }
        drawn = memory.bar(plan, 920, "label")
        widths = [float(width) for width in re.findall(r'<rect [^>]*?width="([\d.]+)"', drawn)]
        return widths, re.findall(r'class="strong"[^>]*>([^<]*)<', drawn)

    def test_widths(self):
        widths, _ = self.bar(weights=1000, gradients=3000)
        self.assertAlmostEqual((widths[1] + 1) / (widths[0] + 1), 3.0, delta=0.01)
        self.assertAlmostEqual(sum(widths) + 2, 916, delta=0.1)

    def test_names_of_what_can_be_seen(self):
        """A wide segment has its name, over itself or up to its end; a sliver has none, whatever room is next to it."""
        _, names = self.bar(weights=5000, tables=1, activations_and_work_space=600, alignment=1)
        self.assertEqual(names, ["weights", "activations_and_work_space"])


class TimingTest(LogTestCase):
    def timing(self, steps=STEPS, accumulation=3):
        return timing.Timing("t.json", {"config": {"training": {"grad_accumulation_steps": accumulation}}}, steps)

    def test_heat_maps(self):
        forward = self.timing().heat_map("forward")
        self.assertEqual(forward.rows, {"qkv": [1.0, 2.0, 3.0]})
        self.assertEqual(forward.largest, 3.0)
        self.assertEqual(self.timing().heat_map("backward").rows, {"qkv_dgrad": [2.0, 2.0, 2.0]})
        self.assertEqual(self.timing().calls(), 7)

    def test_a_step_twice_in_a_layer(self):
        heat = self.timing([timed("rstd", 1.0, 1), timed("rstd", 0.5, 1)]).heat_map("forward")
        self.assertEqual(heat.rows, {"rstd": [None, 1.5]})

    def test_an_optimizer_step(self):
        """The first micro-batch counts once, further ones as often as they run, the update once, evaluations never."""
        found = {item.name: item.ms for item in self.timing().items()}
        self.assertEqual(found, {"qkv": 1 + 2 + 3 + 2 * 5.0, "qkv_dgrad": 6.0, "adamw": 4.0, "embed": 0.5, "zero": 0.1})
        self.assertEqual([item.name for item in self.timing().items()][:2], ["qkv", "qkv_dgrad"])

    def test_an_evaluation_alone(self):
        found = self.timing([timed("qkv", 3.0, 0, pass_="evaluate")])
        self.assertEqual([item.ms for item in found.items()], [3.0])
        self.assertEqual(found.heat_map("forward").rows, {"qkv": [3.0]})

    def test_rates(self):
        item = timing.Item("forward", "a", "A", ms=2.0, flops=4e9, bytes=1e9)
        self.assertEqual((item.intensity, item.flops_per_s, item.bytes_per_s), (4.0, 2e12, 5e11))

    def test_roof(self):
        items = [timing.Item("forward", "a", "A", 1.0, 4e9, 1e6), timing.Item("forward", "b", "B", 1.0, 1e6, 2e9)]
        known = roofline.roof_of("NVIDIA H200", items)
        self.assertEqual((known.flops_per_s, known.bytes_per_s, known.measured), (989e12, 4.8e12, False))
        measured = roofline.roof_of("CPU, 2 threads", items)
        self.assertEqual((measured.flops_per_s, measured.bytes_per_s, measured.measured), (4e12, 2e12, True))
        given = roofline.roof_of("CPU", items, 9e12, 1e12)
        self.assertEqual((given.flops_per_s, given.bytes_per_s, given.measured), (9e12, 1e12, False))

    def test_labels_never_meet(self):
        labels = roofline.Labels([(100, 100, 5)] * 9, (0, 0, 400, 400))
        boxes = []
        for number in range(9):
            if place := labels.place(100, 100, 5, f"name_{number}"):
                boxes.append(labels.box(place[0], place[1], f"name_{number}", place[2]))
        self.assertGreaterEqual(len(boxes), 6)
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                self.assertFalse(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])

    def test_cells(self):
        self.assertEqual(
            [heatmap.cell_text(ms, 2.13) for ms in (2.1, 1, 0.006, 0.004)], ["2.10", "1.00", "0.01", "<0.01"]
        )
        self.assertEqual([heatmap.cell_text(ms, 431.0) for ms in (431.0, 0.2)], ["431", "<1"])
        self.assertEqual(heatmap.strength(2.0, 2.0), 1.0)
        self.assertLess(heatmap.strength(0.5, 2.0), heatmap.strength(1.0, 2.0))

    def test_wrong_files(self):
        for content, words in (
            ("{", "not JSON"),
            ("[]", 'no "steps"'),
            ('{"traceEvents": []}', "not its trace"),
            ('{"steps": [{"pass": "x"}]}', 'steps[0] has no "phase"'),
            (None, "No such file"),
        ):
            path = self.path("t.json")
            if content is None:
                os.remove(path)
            else:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
            with self.assertRaises(timing.TimingError) as caught:
                timing.read(path)
            self.assertIn(path, str(caught.exception))
            self.assertIn(words, str(caught.exception))


class PageTest(ReportCase):
    def test_everything_is_there(self):
        run, reference = self.run_folder(), self.run_folder("reference", offset=0.01)
        path, content = self.report(run, "--reference", reference)
        self.assertEqual(path, os.path.join(run, "report.html"))
        parsed = Balance(content)
        self.assertEqual(parsed.open, [])
        self.assertEqual(len(parsed.ids), len(set(parsed.ids)))
        self.assertLessEqual(FIGURES | {"config", "commands"}, set(parsed.ids))
        self.assertEqual(parsed.loads, [])
        self.assertNotRegex(content, r"url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)")
        self.assertIn("200 steps in common, mean difference -0.01, largest -0.01 at step", content)
        self.assertIn("coda_train --config c", content)
        self.assertIn(f"tools/report.py {run} --reference {reference}", content)
        self.assertIn("40.0%", content)  # the weights' part of the arena

    def test_same_input_same_bytes(self):
        run = self.run_folder()
        self.assertEqual(self.report(run)[1], self.report(run)[1])

    def test_a_bare_log(self):
        """Only a log, of a device without MFU: no empty figures, and a sentence on what is missing."""
        log = self.write("bare.jsonl", [record(1, 3.0, mfu=None), record(2, None, mfu=None)], end='{"step": 3')
        _, content = self.report(log, "--out", self.path("bare.html"))
        ids = Balance(content).ids
        for name in ("mfu", "memory", "roofline", "difference"):
            self.assertNotIn(name, ids)
        for words in ("no plan.json", "coda_train --timing", "cut off", "not finite (1, the first at step 2)"):
            self.assertIn(words, content)

    def spiky(self, count=13):
        """200 steps with scores from 34 on, `count` spikes from step 100 on, and a step without a target."""
        records = [record(step, 3.0, loss_z=None, norm_z=None) for step in range(1, 201)]
        for made in records[33:]:
            made |= {"loss_z": 0.5, "norm_z": -0.5}
        for number in range(count):
            records[99 + number] |= {"loss": 7.0, "loss_z": 8.0 + number, "norm_z": 20.0 + number, "grad_norm": 44.0}
        if count:
            records[100] |= {"skipped": "spike"}
            records[150] |= {"loss": None, "skipped": "no counted target"}
        return records

    def test_spikes(self):
        log = self.write("spiky.jsonl", self.spiky())
        content = self.report(log, "--out", self.path("spiky.html"))[1]
        parsed = Balance(content)
        self.assertEqual(parsed.open, [])
        self.assertIn("spikes", parsed.ids)
        table = content[content.index('<figure id="spikes"'):]
        table = table[:table.index("</figure>")]
        rows = re.findall(r"<tr>(<td>.*?)</tr>", table)
        cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
        self.assertEqual([cell[0] for cell in cells], [str(step) for step in range(103, 113)])  # the 10 worst of 13
        self.assertEqual(cells[0], ["103", "7", "11", "44", "23", "made"])
        self.assertIn("13 steps with a loss or gradient norm of z above 6", table)
        self.assertIn("The 10 of the largest z are shown.", table)
        self.assertIn("<dt>spikes</dt><dd>13</dd><dd class='sub'>2 updates dropped</dd>", content)
        # Circles in the loss for both widths, whole and from step 21 on, and in the gradient norm once.
        self.assertEqual(content.count('class="spike"'), 13 * (2 + 2 + 1))
        self.assertNotIn("A cross marks", content)

    def test_a_dropped_update_says_so(self):
        records = self.spiky(2)
        log = self.write("two.jsonl", records)
        content = self.report(log, "--out", self.path("two.html"))[1]
        self.assertEqual(re.findall(r"<td>(made|dropped)</td>", content), ["made", "dropped"])

    def test_no_spikes(self):
        """Scores without a spike are worth a number; a log without scores says nothing of them."""
        content = self.report(self.write("a.jsonl", self.spiky(0)), "--out", self.path("a.html"))[1]
        self.assertIn("<dt>spikes</dt><dd>0</dd><dd class='sub'>0 updates dropped</dd>", content)
        self.assertNotIn('id="spikes"', content)
        content = self.report(self.run_folder())[1]
        self.assertNotIn("<dt>spikes</dt>", content)

    def test_text_stays_text(self):
        log = self.write("<script>alert(1)<.jsonl", [record(1, 3.0)])
        content = self.report(log, "--out", self.path("x.html"))[1]
        self.assertNotIn("<script>alert", content)
        self.assertIn("&lt;script&gt;alert(1)", content)

    def test_evaluations(self):
        log = runlog.RunLog("runs/a/log.jsonl", {}, {1: record(1, 3.0)})
        log.evaluations = {"hellaswag_val": {1: {"step": 1, "acc": 0.25, "acc_norm": 0.26}}}
        self.assertIn("Accuracy on hellaswag_val", page.render(log, None, None, None, []))

    def test_samples(self):
        """The newest first and open; what a model writes is text, and what follows is its own."""
        def sample(step, text, prompt="Once <b>", tokens=(7, 8)):
            return {"step": step, "sample": text, "prompt": prompt, "tokens": list(tokens)}

        log = self.write("a.jsonl", [record(1, 3.0), sample(1, "old"), record(2, 3.0),
                                     sample(2, "a</pre>\n\x1b[31m\x00 new"), sample(2, None, None, (9, 10))])
        content = self.report(log, "--out", self.path("a.html"))[1]
        parsed = Balance(content)
        self.assertEqual(parsed.open, [])
        self.assertIn("samples", parsed.ids)
        shown = content[content.index('<section id="samples"'):]
        shown = shown[:shown.index("</section>")]
        self.assertEqual(re.findall(r"<details( open)?><summary>(.*?)<", shown), [(" open", "Step 2"), ("", "Step 1")])
        self.assertEqual(re.findall(r'<pre class="sample">(.*?)</pre>', shown, re.S),
                         ["<b>Once &lt;b&gt;</b>a&lt;/pre&gt;\n\ufffd[31m\ufffd new", "9 10",
                          "<b>Once &lt;b&gt;</b>old"])
        self.assertNotIn('id="samples"', self.report(self.run_folder())[1])

    def test_reference_of_another_program(self):
        """Its log may have only losses, and other steps."""
        run = self.run_folder()
        other = self.write("other.jsonl", [{"step": step, "loss": 2.0} for step in range(1, 9)])
        self.assertIn("8 steps in common", self.report(run, "--reference", other)[1])
        none = self.write("none.jsonl", [{"step": 900, "loss": 2.0}])
        self.assertIn("no step in common", self.report(run, "--reference", none)[1])

    def test_wrong_files(self):
        run = self.run_folder()
        for arguments in (
            (self.path("none"),),
            (run, "--reference", self.path("none")),
            (run, "--timing", self.path("none")),
            (run, "--timing", os.path.join(run, "log.jsonl")),
            (run, "--out", self.path("none/x.html")),
        ):
            status, out, err = run_tool("report.py", *arguments)
            self.assertEqual((status, out), (2, ""))
            self.assertNotIn("Traceback", err)
            self.assertIn(arguments[-1], err)

    def test_wrong_plan(self):
        for number, plan in enumerate(([], {"parameters": 1}, {**PLAN, "arena_bytes": 9999})):
            run = self.run_folder(f"run{number}", plan=plan or [0])
            status, _, err = run_tool("report.py", run)
            self.assertEqual(status, 2)
            self.assertIn("plan.json", err)
            self.assertNotIn("Traceback", err)

    @unittest.skipUnless(os.access(PROGRAM, os.X_OK), "no build/cpu/bin/coda_train here")
    def test_plan_of_the_program(self):
        """plan.json says what --dry-run prints and what the log's memory_gib is."""
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be, that is the question; " * 60)
        model = {
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "vocab_size": 256,
        }
        config = {
            "model": model,
            "data": {"train": "text.txt"},
            "training": {"seq_len": 16, "micro_batch_size": 2, "steps": 2},
            "output": {"directory": "run"},
        }
        with open(self.path("c.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        command = [os.path.abspath(PROGRAM), "--config", "c.json", "--device", "cpu"]
        planned = subprocess.run(
            [*command, "--dry-run"], cwd=self.folder, capture_output=True, text=True, check=True
        ).stdout
        done = subprocess.run(
            [*command, "--timing", "run.json"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        if not os.path.exists(self.path("run/plan.json")):
            self.skipTest("build/cpu/bin/coda_train is older than plan.json")
        with open(self.path("run/plan.json"), encoding="utf-8") as file:
            plan = json.load(file)
        printed = {
            name: int(size.replace(",", "")) for name, size in re.findall(r"^  ([a-z ]+?)  +([\d,]+) B ", planned, re.M)
        }
        self.assertEqual(plan["arena_bytes"], printed.pop("arena"))
        self.assertEqual({segment["name"]: segment["bytes"] for segment in plan["segments"]}, printed)
        content = self.report(self.path("run"), "--timing", self.path("run.json"))[1]
        self.assertLessEqual({"memory", "heat-forward", "heat-backward", "roofline"}, set(Balance(content).ids))


if __name__ == "__main__":
    unittest.main()
