"""Hugging Face folders in and out: --init-from, --export, --eval."""

import json
import os
import re
import shutil
import time
import unittest

from checkpoint_folder import (HF_CONFIG, MISTRAL, QWEN2, QWEN3, YARN, Llama, pack_safetensors, random_tensors,
                               read_safetensors, safetensors, shapes, write_folder)
from gpt2_folder import GPT2, Gpt2, gpt2_shapes
from program import CONFIG, RUNTIME, USAGE, ProgramTestCase, kill, shard

SEQ, BATCH = 8, 2
# fp32 against fp64: the loss is about 10 and goes through about 20 sums of at most 24 terms in each of which an error of
# 2^-24 relative may enter, 10 * 20 * 24 * 2^-24 = 3e-4 at the very worst; roundings do not conspire so.
LOSS_TOLERANCE = 3e-5

WIDE = ["--export-dtype", "float32"]


class HuggingFaceTestCase(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.tokens = [(i * i * 31 + 7 * i) % 70 for i in range(200)]
        self.write("tokens.bin", shard(self.tokens))
        self.write("val.bin", shard(self.tokens[100:]))

    def config(self, changes=None, name="config.json", base=None):
        """Without a model section, which the Hugging Face folder gives."""
        changes = {"training.seq_len": SEQ, "training.micro_batch_size": BATCH, "data.train": "tokens.bin",
                   "data.val": "val.bin", "validation.batches": 2, **(changes or {})}
        return super().config(changes, name, base or {**CONFIG, "model": {}})

    def eval(self, *arguments, changes=None):
        return self.validation_loss(self.train(*arguments, "--eval", changes=changes).out)

    def validation_loss(self, out):
        found = re.search(r"^validation loss ([\d.]+) over (\d+) tokens$", out, re.M)
        self.assertEqual(int(found[2]), 2 * BATCH * SEQ)
        return float(found[1])

    def expected_loss(self, config, tensors, **options):
        model = (Gpt2 if config["model_type"] == "gpt2" else Llama)(config, tensors, **options)
        tokens = self.tokens[100:]
        starts = range(0, 2 * BATCH * SEQ, SEQ)
        return sum(model.loss(tokens[i:i + SEQ], tokens[i + 1:i + 1 + SEQ]) for i in starts) / len(starts)


class ImportTest(HuggingFaceTestCase):
    def test_loss_of_a_foreign_checkpoint(self):
        for dtype, shards, change in (("F32", 1, {}), ("BF16", 3, {}), ("F16", 2, {"tie_word_embeddings": True}),
                                      ("F64", 1, {"num_key_value_heads": 4, **QWEN2}),
                                      ("F32", 2, {"tie_word_embeddings": True, "rms_norm_eps": 1e-2, **QWEN3}),
                                      ("F32", 3, MISTRAL), ("BF16", 2, {"attention_bias": True}), ("F32", 4, YARN)):
            with self.subTest(dtype, shards=shards, change=change):
                config = {**HF_CONFIG, **change}
                tensors = random_tensors(config, dtype)
                folder = f"{dtype}_{shards}"
                write_folder(self.path(folder), config, tensors, shards)
                expected = self.expected_loss(config, tensors)
                self.assertAlmostEqual(self.eval("--init-from", folder), expected, delta=LOSS_TOLERANCE)
                # The comparison detects what may go wrong in an import.
                wrong = self.expected_loss(config, tensors, rope_sign=-1)
                self.assertGreater(abs(wrong - expected), 100 * LOSS_TOLERANCE)
                if "rope_scaling" in config:
                    scaling = {**config["rope_scaling"], "attention_factor": 1.0}
                    wrong = self.expected_loss({**config, "rope_scaling": scaling}, tensors)
                    self.assertGreater(abs(wrong - expected), 100 * LOSS_TOLERANCE)
                if "sliding_window" in config:
                    wrong = self.expected_loss({**config, "sliding_window": 4}, tensors)
                    self.assertGreater(abs(wrong - expected), 100 * LOSS_TOLERANCE)

    def test_loss_of_a_foreign_gpt2(self):
        for dtype, shards, change in (("F32", 1, {}), ("BF16", 3, {"activation_function": "gelu"}),
                                      ("F16", 2, {"tie_word_embeddings": False, "n_inner": 40})):
            with self.subTest(dtype, shards=shards, change=change):
                config = {**GPT2, **change}
                tensors = random_tensors(config, dtype, shapes_of=gpt2_shapes)
                folder = f"gpt2_{dtype}"
                write_folder(self.path(folder), config, tensors, shards)
                expected = self.expected_loss(config, tensors)
                self.assertAlmostEqual(self.eval("--init-from", folder), expected, delta=LOSS_TOLERANCE)
                # q and k exchanged is what an import of c_attn may do wrong.
                width, name = config["n_embd"], "transformer.h.0.attn.c_attn.weight"
                rows = [tensors[name][2][i:i + 3 * width] for i in range(0, 3 * width * width, 3 * width)]
                turned = [value for row in rows for value in (*row[width:2 * width], *row[:width], *row[2 * width:])]
                wrong = self.expected_loss(config, {**tensors, name: (*tensors[name][:2], turned)})
                self.assertGreater(abs(wrong - expected), 100 * LOSS_TOLERANCE)

    def test_mixed_dtypes_and_old_buffers(self):
        tensors = random_tensors(HF_CONFIG, "BF16")
        expected = self.expected_loss(HF_CONFIG, tensors)
        for name in ("model.norm.weight", "lm_head.weight"):
            tensors[name] = ("F32", *tensors[name][1:])
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [2], [1.0, 0.1])
        write_folder(self.path("hf"), HF_CONFIG, tensors)
        self.assertAlmostEqual(self.eval("--init-from", "hf"), expected, delta=LOSS_TOLERANCE)

    def test_training_starts_from_it(self):
        tensors = random_tensors(HF_CONFIG)
        write_folder(self.path("hf"), HF_CONFIG, tensors)
        self.train("--init-from", "hf", changes={"data.shuffle": False, "data.val": "val.bin"})
        model = Llama(HF_CONFIG, tensors)
        first = [model.loss(self.tokens[i:i + SEQ], self.tokens[i + 1:i + 1 + SEQ]) for i in range(0, BATCH * SEQ, SEQ)]
        self.assertAlmostEqual(self.log().steps[0]["loss"], sum(first) / BATCH, delta=LOSS_TOLERANCE)
        # A resumed run takes its weights from the checkpoint.
        self.run_program("--config", "config.json", "--init-from", "hf", "--resume", "--training.steps", "14")
        self.assertEqual([record["step"] for record in self.log().steps], list(range(1, 15)))

    def test_tied_head_given_twice(self):
        config = {**HF_CONFIG, "tie_word_embeddings": True}
        tensors = random_tensors(config)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        write_folder(self.path("same"), config, tensors)
        self.assertAlmostEqual(self.eval("--init-from", "same"), self.expected_loss(config, tensors),
                               delta=LOSS_TOLERANCE)
        dtype, shape, values = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = (dtype, shape, [values[0] + 1, *values[1:]])
        write_folder(self.path("other"), config, tensors)
        self.refuse("--init-from", "other", "--export", "out", says=["lm_head.weight differs", "tie_word_embeddings"])


class ExportTest(HuggingFaceTestCase):
    MODEL = {**CONFIG["model"], "vocab_size": 70, "rope_theta": 1000.0, "bos_token_id": 1, "eos_token_id": 2}

    def config(self, changes=None, name="config.json", base=None):
        return super().config(changes, name, base or {**CONFIG, "model": self.MODEL})

    def files(self, folder):
        return {name: self.read(folder, name) for name in self.tree(folder)}

    def test_round_trip(self):
        for tied, window, out_bias in ((False, 0, False), (True, 0, False), (False, 5, False), (True, 0, True)):
            with self.subTest(tied=tied, window=window, out_bias=out_bias):
                form = f"{tied}_{window}_{out_bias}"
                names = [f"{name}_{form}" for name in ("fresh", "trained", "again")]
                changes = {"model.tie_word_embeddings": tied, "model.attention_bias": tied, "model.qk_norm": not tied,
                           "model.sliding_window": window, "model.attention_out_bias": out_bias,
                           "output.directory": f"run_{form}"}
                self.train("--export", names[0], changes=changes)
                self.train(changes=changes)
                self.train("--resume", "--export", names[1], *WIDE, changes=changes)
                self.assertNotEqual(self.files(names[0])["model.safetensors"],
                                    self.files(names[1])["model.safetensors"])
                without_model = HuggingFaceTestCase.config(self, changes={"output.directory": "none"}, name="bare.json",
                                                           base={**CONFIG, "model": {}})
                self.run_program("--config", without_model, "--init-from", names[1], "--export", names[2], *WIDE)
                self.assertEqual(self.files(names[1]), self.files(names[2]))
                self.assertNotIn("none", self.tree())

                # All of them agree with the run's own validation, and with the model from first principles.
                loss = self.log(f"run_{form}").validations[-1]["val_loss"]
                self.assertEqual(self.eval("--resume", changes=changes), loss)
                self.assertEqual(self.eval("--init-from", names[1], changes=changes), loss)
                config = json.loads(self.read(names[1], "config.json"))
                tensors = read_safetensors(self.path(names[1], "model.safetensors"))
                self.assertAlmostEqual(self.expected_loss(config, tensors), loss, delta=LOSS_TOLERANCE)

    def test_round_trip_of_a_gpt2(self):
        model = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "vocab_size": 70, "max_position_embeddings": 32, "tie_word_embeddings": True, "norm": "layernorm",
                 "position_embeddings": "learned", "mlp": "gelu_tanh", "attention_bias": True,
                 "attention_out_bias": True, "mlp_bias": True}
        run = super().config({"output.directory": "run"}, "gpt2.json", {**CONFIG, "model": model})
        self.run_program("--config", run)
        self.run_program("--config", run, "--resume", "--export", "gpt2", *WIDE)
        bare = HuggingFaceTestCase.config(self, {"output.directory": "none"}, "bare.json", {**CONFIG, "model": {}})
        self.run_program("--config", bare, "--init-from", "gpt2", "--export", "again", *WIDE)
        self.assertEqual(self.files("gpt2"), self.files("again"))
        config = json.loads(self.read("gpt2", "config.json"))
        tensors = read_safetensors(self.path("gpt2", "model.safetensors"))
        self.assertEqual({name: tensor[1] for name, tensor in tensors.items()}, gpt2_shapes(config))
        loss = self.log("run").validations[-1]["val_loss"]
        evaluated = self.run_program("--config", bare, "--init-from", "gpt2", "--eval")
        self.assertEqual(self.validation_loss(evaluated.out), loss)
        self.assertAlmostEqual(self.expected_loss(config, tensors), loss, delta=LOSS_TOLERANCE)

    def test_folder(self):
        self.train("--export", "some/where/out/", *WIDE)
        self.assertEqual(self.tree("some"), ["where", "where/out", "where/out/config.json",
                                             "where/out/generation_config.json", "where/out/model.safetensors"])
        config = json.loads(self.read("some/where/out/config.json"))
        for key, value in {**self.MODEL, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
                           "hidden_act": "silu", "torch_dtype": "float32", "head_dim": 4,
                           "tie_word_embeddings": False, "attention_bias": False}.items():
            self.assertEqual(config[key], value, key)
        tensors = read_safetensors(self.path("some/where/out/model.safetensors"))
        self.assertEqual({name: tensor[1] for name, tensor in tensors.items()}, shapes(config))
        self.assertEqual({tensor[0] for tensor in tensors.values()}, {"F32"})
        for name, (_, shape, values) in tensors.items():
            if len(shape) == 1:
                self.assertEqual(set(values), {1.0}, name)
            else:  # N(0, 0.02): the deviation of n samples is within 5 / sqrt(2 n) relative
                deviation = (sum(value * value for value in values) / len(values)) ** 0.5
                self.assertAlmostEqual(deviation / 0.02, 1, delta=5 / (2 * len(values)) ** 0.5, msg=name)

    def test_existing_folder(self):
        os.mkdir(self.path("empty"))
        self.train("--export", "empty")
        before = self.files("empty")
        self.refuse("--export", "empty", says=["empty", "exists and is not empty"])
        self.assertEqual(self.files("empty"), before)
        self.write("file", b"kept")
        self.refuse("--export", "file", says="file")
        self.assertEqual(self.read("file"), b"kept")
        self.refuse("--export", "file/out", says="file")

    def test_killed_within_an_export(self):
        # Wherever the folder exists it is whole.
        changes = {"model.vocab_size": 20000, "model.num_hidden_layers": 40}
        config = self.config(changes)
        cut = 0
        for attempt in range(8):
            process = self.start_quiet("--config", config, "--export", "out")
            while process.poll() is None and not any(name.startswith("out") and name != "output.txt"
                                                     for name in os.listdir(self.folder)):
                pass
            time.sleep(0.002 * attempt)
            kill(process)
            if not os.path.exists(self.path("out")):
                cut += 1
            elif cut > 0:
                break
            else:  # the kill came late: again
                shutil.rmtree(self.path("out"))
        self.assertGreater(cut, 0, "no kill fell into the export")
        if not os.path.exists(self.path("out")):
            self.run_program("--config", config, "--export", "out")
        self.train("--export", "whole", changes=changes)
        self.assertEqual(self.files("out"), self.files("whole"))
        self.assertNotIn("out.partial", self.tree())

    def test_evaluation_leaves_nothing(self):
        before = self.tree()
        self.eval()
        self.assertEqual(self.tree(), sorted([*before, "config.json"]))
        self.assertIn("timing.json", (self.eval("--timing", "timing.json"), self.tree())[1])


class RefusedImportTest(HuggingFaceTestCase):
    """Every refusal names what is wrong and leaves neither an export nor a run behind."""

    def setUp(self):
        super().setUp()
        self.tensors = random_tensors(HF_CONFIG, "BF16")
        write_folder(self.path("hf"), HF_CONFIG, self.tensors)

    def refuse_import(self, says, code=RUNTIME):
        for arguments in (["--export", "out"], [], ["--dry-run"]):
            self.refuse("--init-from", "hf", *arguments, says=says, code=code)

    def put(self, contents, name="model.safetensors"):
        self.write(os.path.join("hf", name), contents)

    def test_tensors_that_do_not_fit(self):
        q, down = "model.layers.1.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight"
        tensors = dict(self.tensors)
        tensors["model.layers.2.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"]
        tensors[down] = (tensors[down][0], [24, 16], tensors[down][2])
        del tensors[q]
        self.put(safetensors(tensors))
        self.refuse_import([f"1 missing: {q}", "1 unexpected: model.layers.2.mlp.up_proj.weight",
                            f"{down} [24, 16] for [16, 24]", "hf"])

    def test_many_missing_tensors_are_counted(self):
        self.put(safetensors({"model.norm.weight": self.tensors["model.norm.weight"]}))
        self.refuse_import(["20 missing: ", "and 10 more"])

    def test_integer_weights(self):
        tensors = dict(self.tensors)
        header = {"__metadata__": {"format": "pt"}}
        data = b""
        for name, (_, shape, values) in tensors.items():
            header[name] = {"dtype": "I16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * len(values)]}
            data += bytes(2 * len(values))
        self.put(pack_safetensors(header, data))
        self.refuse_import(["dtype I16", "model.safetensors"])

    def test_hostile_files(self):
        good = safetensors(self.tensors)
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        huge = 2 ** 62
        cases = {
            "empty": (b"", "not a safetensors file"),
            "only the header length": (good[:8], "cut short"),
            "cut in the header": (good[:300], "cut short"),
            "cut in the data": (good[:-100], "cut short"),
            "bytes after the end": (good + b"1234", "bytes follow the last tensor"),
            "huge header": (pack_safetensors({}, b"", length=2 ** 64 - 1), "cut short"),
            "header beyond the file": (pack_safetensors({}, b"", length=50_000_000), "cut short"),
            "no JSON": (pack_safetensors(b"{\"a\": ", b""), "header"),
            "JSON of another kind": (pack_safetensors([], b""), "does not begin with '{'"),
            "a key twice": (pack_safetensors(b'{"a": {}, "a": {}}', b""), "given twice"),
            "deep nesting": (pack_safetensors(b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", b""), "deep"),
            "overlap": (pack_safetensors({"a": entry, "b": {**entry, "data_offsets": [4, 12]}}, bytes(12)), "overlaps"),
            "hole": (pack_safetensors({"a": entry, "b": {**entry, "data_offsets": [12, 20]}}, bytes(20)), "hole"),
            "offsets backwards": (pack_safetensors({"a": {**entry, "data_offsets": [8, 0]}}, bytes(8)), "[begin, end]"),
            "offset beyond the end": (pack_safetensors({"a": {**entry, "data_offsets": [0, huge]}}, bytes(8)),
                                      "cut short"),
            "negative offset": (pack_safetensors({"a": {**entry, "data_offsets": [-8, 0]}}, bytes(8)), "non-negative"),
            "huge shape": (pack_safetensors({"a": {**entry, "shape": [huge, huge]}}, bytes(8)), "more than 2^63 bits"),
            "size of another shape": (pack_safetensors({"a": {**entry, "shape": [3]}}, bytes(8)), "takes 12"),
            "unknown dtype": (pack_safetensors({"a": {**entry, "dtype": "F7"}}, bytes(8)), "unknown dtype"),
            "missing key": (pack_safetensors({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "data_offsets"),
            "control characters in a name": (pack_safetensors({"\x1b[31m\n": {**entry, "dtype": "F7"}}, bytes(8)),
                                             "unknown dtype"),
        }
        for name, (contents, says) in cases.items():
            with self.subTest(name):
                self.put(contents)
                self.refuse_import(["hf/model.safetensors", says])

    def test_index(self):
        os.remove(self.path("hf/model.safetensors"))
        self.refuse_import(["hf", "has neither model.safetensors nor model.safetensors.index.json"])
        shutil.rmtree(self.path("hf"))
        write_folder(self.path("hf"), HF_CONFIG, self.tensors, shards=2)
        index = json.loads(self.read("hf/model.safetensors.index.json"))
        first = next(iter(index["weight_map"]))
        self.write("outside.safetensors", safetensors(self.tensors))
        for value, says in (("../outside.safetensors", "not the name of a safetensors file"),
                            ("model-00009-of-00009.safetensors", "model-00009-of-00009.safetensors"),
                            ("model-00002-of-00002.safetensors", first), (7, first), ("/etc/passwd", first),
                            ("model\0.safetensors", "not the name of a safetensors file")):
            with self.subTest(value):
                wrong = {**index, "weight_map": {**index["weight_map"], first: value}}
                self.put(json.dumps(wrong).encode(), "model.safetensors.index.json")
                self.refuse_import(["hf/", says])
        self.put(b"{}", "model.safetensors.index.json")
        self.refuse_import(["model.safetensors.index.json", "weight_map"])

    def test_config(self):
        def refuse(change, says, code=RUNTIME):
            config = {key: value for key, value in {**HF_CONFIG, **change}.items() if value is not ...}
            self.put(json.dumps(config).encode(), "config.json")
            self.refuse_import(says, code)

        refuse({"model_type": "gpt_neox"}, ["hf/config.json", "model_type", "gpt_neox"])
        refuse({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, ["hf/config.json", "missing key n_embd"])
        refuse({"hidden_size": ...}, ["hf/config.json", "missing key hidden_size"])
        refuse({"hidden_size": "16"}, ["hf/config.json", "hidden_size"])
        refuse({"attention_bias": "qkv"}, ["hf/config.json", "attention_bias"])
        refuse({**QWEN3, "use_sliding_window": True, "max_window_layers": 1}, ["hf/config.json", "max_window_layers"])
        refuse({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, ["hf/config.json", "dynamic"])
        refuse({"vocab_size": 80}, ["model.embed_tokens.weight [70, 16] for [80, 16]"])
        self.put(b"{", "config.json")
        self.refuse_import(["hf/config.json:1:"])
        os.remove(self.path("hf/config.json"))
        self.refuse_import(["hf/config.json", "No such file"])
        shutil.rmtree(self.path("hf"))
        self.refuse_import(["hf", "no such folder"])

    def test_files_that_would_be_waited_for(self):
        shutil.rmtree(self.path("hf"))
        write_folder(self.path("hf"), HF_CONFIG, self.tensors, shards=2)
        for name in os.listdir(self.path("hf")):
            with self.subTest(name):
                contents = self.read("hf", name)
                os.remove(self.path("hf", name))
                os.mkfifo(self.path("hf", name))
                self.refuse_import([f"hf/{name}: ", "a FIFO"])
                os.remove(self.path("hf", name))
                self.put(contents, name)

    def test_conflict_with_the_run_config(self):
        for value in (32, 24):
            self.refuse("--init-from", "hf", changes={"model.hidden_size": value}, code=USAGE,
                        says=["model.hidden_size", str(value), "hf/config.json gives 16"])


if __name__ == "__main__":
    unittest.main()
