"""Result files: tools/bench/records.py, which merges and writes them, and tools/check_results, which judges them."""

import glob
import json
import os
import re
import sys
import unittest

from logs import TOOLS, LogTestCase, run_tool

sys.path.insert(0, os.path.join(TOOLS, "bench"))
import records  # noqa: E402

ROOT = os.path.normpath(os.path.join(TOOLS, ".."))
HEADER = {"gpu": "NVIDIA H200", "commit": "b7126d3b0446", "date": "2026-11-22T06:32:25Z",
          "command": "coda_bench gemm", "driver": None, "clocks": {"sm_mhz": 1455}}


def gemm(n=3072, **changes):
    return {"program": "Linear", "layout": "TN", "M": 32768, "N": n, "K": 2048, "precision": "bf16", "ms": 1.0,
            "cublas_ms": 2.0, "ratio": 0.5, "spread": [0.4, 0.6], "tflops": 600.0, "gbps": 500.0} | changes


def fp8_gemm(**changes):
    return gemm(precision="fp8", promotion=512, bf16_ms=1.8, ratio_bf16=0.55) | changes


def step(**changes):
    return {"config": "llama1b", "precision": "bf16", "part": "step", "B": 4, "T": 8192, "lm_head_chunks": 1,
            "recompute": "none", "ms": 10.0, "tokens_per_s": 3e6, "mfu": 0.5} | changes


class GpuNameTest(unittest.TestCase):
    def test_prefixes(self):
        for name, prefix in (("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100"),
                             ("NVIDIA H200 NVL", "h200"), ("h200", None), ("NVIDIA GH200 480GB", None),
                             ("NVIDIA A100-SXM4-80GB", None), ("cpu", None), ("NVIDIA H1000", None)):
            if prefix:
                self.assertEqual(records.gpu_prefix(name), prefix)
            else:
                self.assertRaisesRegex(records.RecordError, f"'{name}' has no result files", records.gpu_prefix, name)


class SchemaTest(unittest.TestCase):
    def problems(self, record, what="gemm"):
        return records.problems(what, records.stamped(HEADER, [record])[0])

    def test_good_records(self):
        self.assertEqual(self.problems(gemm()), [])
        self.assertEqual(self.problems(step(), "step"), [])

    def test_every_field_of_the_key_is_required(self):
        for what, schema in records.SCHEMAS.items():
            self.assertEqual(records.problems(what, HEADER | {"driver": "580"}),
                             [f"{name} is missing" for name in (*schema.key, *schema.required)])

    def test_bad_fields(self):
        for change, said in (
            ({"ratio_of_5814b8c": 1.0}, "ratio_of_5814b8c is not a field of gemm records"),
            ({"M": 1.5}, "M must be a whole number, this is 1.5"),
            ({"M": True}, "M must be a whole number, this is true"),
            ({"ms": "1"}, 'ms must be a number, this is "1"'),
            ({"ms": 0}, "ms must be a number, this is 0"),
            ({"ms": float("nan")}, "ms must be a number, this is NaN"),
            ({"program": ""}, 'program must be a string, this is ""'),
            ({"spread": 0.5}, "spread must be a list of numbers, this is 0.5"),
            ({"spread": [0.6, 0.4]}, r"spread must be \[lowest, highest\]"),
        ):
            self.assertRegex("; ".join(self.problems(gemm(**change))), said)
        self.assertIn("deterministic must be true or false", self.problems(step(deterministic=1), "step")[0])

    def test_stamps(self):
        for change, said in (({"commit": "HEAD"}, "commit must be"), ({"source_hash": "12"}, "source_hash must be"),
                             ({"commit": "b7126d3b0446+"}, "commit must be"),
                             ({"date": "yesterday"}, "date must be"), ({"command": None}, "command is missing")):
            problems = records.problems("gemm", records.stamped(HEADER | change, [gemm()])[0])
            self.assertEqual(len(problems), 1)
            self.assertIn(said, problems[0])
        for good in ({"commit": "b7126d3b0446-dirty"}, {"commit": "no git"}, {"source_hash": "0" * 64}):
            self.assertEqual(records.problems("gemm", records.stamped(HEADER | good, [gemm()])[0]), [])

    def test_ratio_beside_its_times(self):
        self.assertRegex(self.problems(gemm(ratio=2.0))[0], r"ratio is 2.0 and ms / cublas_ms 0.5.* not both within")
        self.assertRegex(self.problems(gemm(ms=2.0))[0], r"ratio is 0.5 and ms / cublas_ms 1.0.* not both within")
        old = {key: value for key, value in gemm().items() if key != "spread"}
        self.assertEqual(self.problems(old | {"ratio": 0.51}), [])
        self.assertEqual(self.problems(old | {"ratio": 2.0}), ["ratio is 2.0, but ms / cublas_ms is 0.500000"])
        self.assertEqual(self.problems(step(ratio=0.9), "step"), ["ratio and torch_ms belong together"])

    def test_ratio_of_rounds(self):
        good = records.compared([step(ms=ms) for ms in (10.0, 12.0, 11.0)], "torch", [20.0, 20.0, 20.0])
        self.assertEqual((good["ms"], good["torch_ms"], good["ratio"], good["spread"]), (11.0, 20.0, 0.55, [0.5, 0.6]))
        self.assertEqual((good["rounds_ms"], good["torch_rounds_ms"]), ([10.0, 12.0, 11.0], [20.0] * 3))
        self.assertEqual(self.problems(good, "step"), [])
        self.assertEqual(self.problems(good | {"ratio": 0.56}, "step"),
                         ["ratio is 0.56, the median of its rounds is 0.550000"])
        self.assertEqual(self.problems(good | {"torch_rounds_ms": [20.0]}, "step"),
                         ["rounds_ms has 3 rounds, torch_rounds_ms 1"])

    def test_fp8_beside_our_bf16(self):
        good = records.compared([step(precision="fp8", ms=ms) for ms in (7.0, 7.2, 7.1)], "bf16", [10.0, 10.0, 9.9],
                                "ratio_bf16") | {"in_turns": True, "arena_gib": 61.4, "bf16_arena_gib": 60.6}
        self.assertEqual((good["bf16_ms"], good["ratio_bf16"], good["bf16_rounds_ms"]),
                         (10.0, 7.1 / 9.9, [10.0, 10.0, 9.9]))
        self.assertEqual(self.problems(good, "step"), [])
        self.assertEqual(self.problems(good | {"ratio_bf16": 0.7}, "step"),
                         ["ratio_bf16 is 0.7, the median of its rounds is 0.717172"])
        self.assertEqual(self.problems({k: v for k, v in good.items() if k != "in_turns"}, "step"),
                         ["ratio_bf16 and in_turns belong together"])
        self.assertEqual(self.problems(good | {"in_turns": 1}, "step"), ["in_turns must be true or false, this is 1"])
        # A step of torchao's rival is another record, and bf16 is neither's.
        self.assertEqual(len({records.key_of("step", record) for record in
                              (good, good | {"torchao_recipe": "rowwise"}, step())}), 3)

    def test_attention_has_the_rival_of_its_mask(self):
        causal = {"pass": "forward", "B": 1, "T": 2048, "D": 64, "H": 4, "Hkv": 1, "ms": 1.0, "tflops": 500.0,
                  "gbps": 200.0, "bytes": 1e6, "cudnn_ms": 2.0, "ratio": 0.5}
        masked = {name: value for name, value in causal.items() if name not in ("cudnn_ms", "ratio")} | {
            "visible": 0.2, "per_product": 1.1, "flex_ms": 2.0, "ratio_flex": 0.5}
        self.assertEqual(self.problems(causal, "attention"), [])
        for mask in ({"documents": 500}, {"window": 4096}):
            self.assertEqual(self.problems(masked | mask, "attention"), [])
            self.assertEqual(self.problems(causal | mask, "attention"), ["flex_ms is missing"])
        self.assertEqual(self.problems(masked, "attention"), ["cudnn_ms is missing"])
        self.assertEqual(len({records.key_of("attention", record)
                              for record in (causal, masked | {"documents": 500}, masked | {"window": 500})}), 3)

    def test_fp8_gemms(self):
        good = fp8_gemm()
        self.assertEqual(self.problems(good), [])
        self.assertEqual(self.problems({k: v for k, v in good.items() if k != "ratio_bf16"}),
                         ["ratio_bf16 belongs to fp8 records, and to each"])
        self.assertEqual(self.problems(gemm(bf16_ms=1.8)), ["bf16_ms belongs to fp8 records, and to each"])
        self.assertEqual(self.problems(good | {"dx_f8": 1}), ["dx_f8 must be true or false, this is 1"])

    def test_the_median_of_ratios_is_taken_pair_by_pair(self):
        made = records.compared([{"ms": 1.0}, {"ms": 2.0}, {"ms": 4.0}], "torch", [4.0, 1.0, 2.0])
        self.assertEqual((made["ratio"], made["ms"], made["torch_ms"]), (2.0, 2.0, 2.0))


class MergeTest(LogTestCase):
    def merge(self, made, what="gemm", **header):
        return records.merge(self.folder, what, HEADER | header, made)

    def test_a_run_replaces_what_it_measured_and_leaves_the_rest(self):
        path = self.merge([gemm(1024), gemm(2048), gemm(3072)])
        self.assertEqual(os.path.basename(path), "h200_gemm.json")
        self.merge([gemm(2048, ms=1.1), gemm(4096)], commit="0123456789ab")
        header, found = records.read(path)
        self.assertEqual(header, {"gpu": "h200", "what": "gemm"})
        self.assertEqual([(r["N"], r["ms"], r["commit"][0]) for r in found],
                         [(1024, 1.0, "b"), (2048, 1.1, "0"), (3072, 1.0, "b"), (4096, 1.0, "0")])

    def test_every_part_of_the_key_counts(self):
        made = [gemm(**change) for change in ({}, {"layout": "NN"}, {"program": "Linear in_out"}, {"K": 8})]
        made += [fp8_gemm(), fp8_gemm(promotion=256), fp8_gemm(dx_f8=True)]
        path = self.merge(made)
        self.assertEqual(len(records.read(path)[1]), len(made))

    def test_a_record_of_the_only_order_replaces_the_one_that_names_it(self):
        path = self.merge([step(deterministic=True), step(deterministic=False, ms=9.0)], "step")
        self.merge([step(ms=11.0)], "step")
        self.assertEqual([(r["ms"], r.get("deterministic")) for r in records.read(path)[1]],
                         [(11.0, None), (9.0, False)])

    def test_gpus_have_files_of_their_own(self):
        self.merge([gemm()])
        path = self.merge([gemm()], gpu="NVIDIA H100 80GB HBM3")
        self.assertEqual(sorted(os.listdir(self.folder)), ["h100_gemm.json", "h200_gemm.json"])
        self.assertEqual(records.read(path)[1][0]["gpu"], "NVIDIA H100 80GB HBM3")

    def test_a_bad_record_writes_nothing(self):
        path = self.merge([gemm()])
        with open(path, encoding="utf-8") as file:
            before = file.read()
        for bad, said in (([gemm(5), gemm(6, ratio=3.0)], "Linear TN M=32768 N=6 K=2048 bf16: ratio is 3.0"),
                          ([gemm(5), gemm(5)], "measured twice in one run")):
            self.assertRaisesRegex(records.RecordError, said, self.merge, bad)
        self.assertRaisesRegex(records.RecordError, "does not name the GPU", self.merge, [gemm()], gpu=None)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(os.listdir(self.folder), ["h200_gemm.json"])

    def test_commands_name_no_folder_of_the_machine(self):
        path = self.merge([gemm()], command=f"{ROOT}/build/hopper/bin/coda_bench gemm --shape Linear:1:2:3 --config "
                                            "/tmp/check_1/small.json --json /tmp/check_1/bench.json --blocks 5")
        self.assertEqual(records.read(path)[1][0]["command"],
                         "build/hopper/bin/coda_bench gemm --shape Linear:1:2:3 --config small.json --blocks 5")

    def test_command_line(self):
        records.write(self.path("run.json"), HEADER, [gemm()])
        results = self.path("results")
        status, out, err = run_tool("bench/records.py", "gemm", self.path("run.json"), "--results", results)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("1 records into", out)
        self.assertEqual(os.listdir(results), ["h200_gemm.json"])
        status, _, err = run_tool("bench/records.py", "step", self.path("run.json"), "--results", results)
        self.assertEqual(status, 1)
        self.assertIn("records.py: step", err)
        self.assertEqual(run_tool("bench/records.py", "speed", self.path("run.json"))[0], 2)
        status, _, err = run_tool("bench/records.py", "gemm", self.path("no_such.json"))
        self.assertEqual((status, err), (1, f"records.py: {self.path('no_such.json')}: No such file or directory\n"))


class CheckResultsTest(LogTestCase):
    def check(self, *arguments, expect=0):
        """Lines of what it prints: standard output, or standard error where it finds something wrong."""
        status, out, err = run_tool("check_results", *arguments)
        self.assertEqual(status, expect, out + err)
        self.assertEqual(bool(err), expect != 0)
        return (err or out).splitlines()

    def test_good_files(self):
        self.assertEqual(self.check(self.folder), ["0 records: as they should be"])
        records.merge(self.folder, "gemm", HEADER, [gemm(1024), gemm(2048)])
        records.merge(self.folder, "step", HEADER, [step()])
        self.assertEqual(self.check(self.folder), ["3 records: as they should be"])

    def planted(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        said = self.check(self.folder, expect=1)
        os.remove(self.path(name))
        return said

    def test_malformed_files_are_found(self):
        good = records.stamped(HEADER, [gemm()])
        head = {"gpu": "h200", "what": "gemm"}
        for name, content, said in (
            ("h200_speed.json", {"header": head, "records": good}, "h200_speed.json: the name must be GPU_WHAT.json"),
            ("cpu_gemm.json", {"header": head, "records": good}, "cpu_gemm.json: the name must be"),
            ("h200_gemm.jsonl", "", "h200_gemm.jsonl: the name must be"),
            ("h200_gemm.json", "{", "h200_gemm.json: not JSON"),
            ("h200_gemm.json", good, 'h200_gemm.json: must be {"header"'),
            ("h200_gemm.json", {"header": head, "records": good, "accuracy": []}, "h200_gemm.json: must be"),
            ("h200_gemm.json", {"header": head, "records": [1]}, "records[0] must be an object"),
            ("h200_gemm.json", {"header": head | {"date": "today"}, "records": good}, "the header must be"),
            ("h100_gemm.json", {"header": head | {"gpu": "h100"}, "records": good}, "measured on an NVIDIA H200"),
            ("h200_gemm.json", {"header": head, "records": good * 2}, "a second record of the same key"),
            ("h200_gemm.json", {"header": head, "records": [good[0] | {"ratio": 2.0}]},
             "h200_gemm.json: Linear TN M=32768 N=3072 K=2048 bf16: ratio is 2.0 and ms / cublas_ms 0.5"),
            ("h200_gemm.json", {"header": head, "records": [good[0] | {"free_order": "later"}]},
             "free_order is not a field of gemm records"),
        ):
            found = self.planted(name, content)
            self.assertEqual(len(found), 1, found)
            self.assertIn(said, found[0])

    def test_usage(self):
        self.assertIn("usage: tools/check_results [DIR]", self.check("--help"))
        self.assertIn("unknown argument '--colour'", self.check("--colour", expect=2)[0])

    def test_the_results_of_the_project(self):
        self.assertRegex(self.check()[0], r"^[1-9]\d+ records: as they should be$")

    def test_the_results_of_the_project_name_ops_that_exist(self):
        ops = set()
        for path in glob.glob(os.path.join(ROOT, "kernels", "ops", "*", "*.h")):
            with open(path, encoding="utf-8") as file:
                ops |= set(re.findall(r'const char\* name = "(\w+)"', file.read()))
        self.assertIn("LinearRope", ops)
        for path in glob.glob(os.path.join(records.RESULTS, "*.json")):
            for record in records.read(path)[1]:
                named = record.get("program", record.get("op"))
                self.assertTrue(named is None or named.split()[0] in ops, f"{path}: {named}")

    def test_the_results_of_the_project_name_configurations_that_exist(self):
        for path in glob.glob(os.path.join(records.RESULTS, "*.json")):
            for config in {record["config"] for record in records.read(path)[1] if "config" in record}:
                self.assertTrue(os.path.exists(os.path.join(ROOT, "configs", config + ".json")), f"{path}: {config}")


if __name__ == "__main__":
    unittest.main()
