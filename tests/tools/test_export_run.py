"""tools/export_run.py: what it writes, read back through the other programs' own packages."""

import importlib.util
import json
import math
import os
import struct
import sys
import unittest
from unittest import mock

from logs import HEADER, LogTestCase, run_tool, steps

import export_run
import runlog

EVALUATION = {"step": 3, "evaluation": "hellaswag_val", "acc": 0.25, "acc_norm": 0.5, "examples": 8}


def records():
    timed = [{**record, "ms": 1000.0, "tokens": 64 * record["step"], "mfu": None} for record in steps(3.0, None, 1.5)]
    return [*timed, {"step": 3, "val_loss": 1.75}, EVALUATION]


def has(package):
    return importlib.util.find_spec(package) is not None


class NumbersTest(LogTestCase):
    def test_scalars(self):
        found = export_run.scalars(runlog.read(self.write("a.jsonl", records())))
        self.assertEqual(list(found), [1, 2, 3])
        self.assertEqual(
            found[3],
            {
                "train/loss": 1.5,
                "train/grad_norm": 1.0,
                "train/learning_rate": 3e-4,
                "train/tokens": 192.0,
                "train/ms": 1000.0,
                "validation/loss": 1.75,
                "evaluation/hellaswag_val/acc": 0.25,
                "evaluation/hellaswag_val/acc_norm": 0.5,
            },
        )
        self.assertTrue(math.isnan(found[2]["train/loss"]))

    def test_scores(self):
        """No verdict is no number, and the reason of a dropped update is none either."""
        first, second = ({**record, "loss_z": None, "norm_z": None} for record in steps(3.0, 2.0))
        second |= {"norm_z": 7.5, "skipped": "spike"}
        found = export_run.scalars(runlog.read(self.write("a.jsonl", [first, second])))
        self.assertEqual(set(found[1]), {"train/loss", "train/grad_norm", "train/learning_rate"})
        self.assertEqual(set(found[2]) - set(found[1]), {"train/norm_z"})
        self.assertEqual(found[2]["train/norm_z"], 7.5)

    def test_times(self):
        path = self.write("a.jsonl", records())
        os.utime(path, (5000, 5000))
        self.assertEqual(export_run.times(runlog.read(path)), {1: 4998.0, 2: 4999.0, 3: 5000.0})


class CommandTest(LogTestCase):
    def test_missing_package(self):
        """A word on what to install, and nothing written."""
        log = runlog.read(self.write("a.jsonl", records()))
        for package, export in export_run.EXPORTS.items():
            missing = {name: None for name in [package, *(n for n in sys.modules if n.startswith(package + "."))]}
            with mock.patch.dict(sys.modules, missing), self.assertRaises(export_run.ExportError) as caught:
                export(log, self.path("out"))
            self.assertIn(f"pip install {package}", str(caught.exception))
            self.assertFalse(os.path.exists(self.path("out")))

    def test_usage(self):
        log = self.write("a.jsonl", records())
        os.makedirs(self.path("full/x"))
        for arguments, status, words in (
            ((log,), 2, "--to"),
            ((log, "--to", "excel"), 2, "excel"),
            ((self.path("none"), "--to", "wandb"), 2, "none"),
            ((log, "--to", "wandb", "--out", self.path("full")), 1, "is not empty"),
            ((log, "--to", "tensorboard", "--out", self.path("a.jsonl")), 1, "a.jsonl"),
        ):
            done = run_tool("export_run.py", *arguments)
            self.assertEqual(done[0], status, done)
            self.assertIn(words, done[2])
            self.assertNotIn("Traceback", done[2])


@unittest.skipUnless(has("tensorboard"), "no tensorboard here (pip install tensorboard)")
class TensorBoardTest(LogTestCase):
    def test_read_back(self):
        from tensorboard.backend.event_processing import event_accumulator

        os.mkdir(self.path("run"))
        log = self.write("run/log.jsonl", records())
        os.utime(log, (5000, 5000))
        status, out, err = run_tool("export_run.py", self.path("run"), "--to", "tensorboard")
        self.assertEqual(status, 0, err)
        folder = self.path("run/tensorboard")
        self.assertEqual(out.splitlines(), [folder, f"tensorboard --logdir {folder}"])

        events = event_accumulator.EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()

        # Either kind: the reader may turn one into the other.
        def series(tag):
            if tag in events.Tags()["scalars"]:
                return [(event.step, event.wall_time, event.value) for event in events.Scalars(tag)]
            from tensorboard.util import tensor_util

            return [(e.step, e.wall_time, float(tensor_util.make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]

        self.assertEqual(
            [(step, time) for step, time, _ in series("train/loss")], [(1, 4998.0), (2, 4999.0), (3, 5000.0)]
        )
        first, second, third = (value for *_, value in series("train/loss"))
        self.assertEqual((first, third), (3.0, 1.5))
        self.assertTrue(math.isnan(second))
        self.assertEqual(series("validation/loss"), [(3, 5000.0, 1.75)])
        self.assertEqual(series("evaluation/hellaswag_val/acc_norm"), [(3, 5000.0, 0.5)])
        self.assertAlmostEqual(series("train/learning_rate")[0][2], 3e-4, delta=1e-10)  # single precision
        text = events.Tensors("command")[0].tensor_proto.string_val[0].decode()
        self.assertEqual(text.strip(), HEADER["command"])
        self.assertIn('"steps": 3', events.Tensors("config")[0].tensor_proto.string_val[0].decode())

        again = run_tool("export_run.py", self.path("run"), "--to", "tensorboard")
        self.assertEqual(again[0], 1)
        self.assertIn("is not empty", again[2])


def wandb_records(path):
    """The records of a .wandb file: LevelDB's log format in blocks of 32 KiB, the first of which begins with 7 bytes of
    magic. A record is cut into whole (1), first (2), middle (3) and last (4) parts."""
    with open(path, "rb") as file:
        content = file.read()
    at, record, found = 7, b"", []
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        part = content[at + 7 : at + 7 + size]
        record = part if kind in (1, 2) else record + part
        if kind in (1, 4):
            found.append(record)
        at += 7 + size
    return found


@unittest.skipUnless(has("wandb"), "no wandb here (pip install wandb)")
class WandbTest(LogTestCase):
    def test_read_back(self):
        from wandb.proto import wandb_internal_pb2

        os.mkdir(self.path("run"))
        self.write("run/log.jsonl", records())
        with mock.patch.dict(os.environ, {"HOME": self.folder}):
            status, out, err = run_tool("export_run.py", self.path("run"), "--to", "wandb", "--out", self.path("w"))
        self.assertEqual(status, 0, err)
        folder = out.splitlines()[0]
        (file,) = (name for name in os.listdir(folder) if name.endswith(".wandb"))
        rows, config = [], {}
        for data in wandb_records(os.path.join(folder, file)):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                items = record.history.item
                rows.append({(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in items})
            if record.HasField("run"):
                config.update({item.key: json.loads(item.value_json) for item in record.run.config.update})
        self.assertEqual([row["_step"] for row in rows], [1, 2, 3])
        self.assertEqual((rows[0]["train/loss"], rows[2]["train/loss"], rows[2]["validation/loss"]), (3.0, 1.5, 1.75))
        self.assertEqual(config["training"], {"steps": 3})


if __name__ == "__main__":
    unittest.main()
