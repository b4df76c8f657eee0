"""Folders of 4-bit weights. Reading one gives q times scale, to the bit, in both layouts. --export-dtype int4 writes
the codes and scales that a second implementation of the search finds."""

import copy
import json
import math
import os
import random
import re
import struct
import subprocess
import unittest

from checkpoint_folder import HF_CONFIG, QWEN2, from_bytes, random_tensors, read_safetensors, to_bytes, write_folder
from program import CONFIG, PROGRAM, TIMEOUT_S, USAGE, ProgramTestCase, shard

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
GROUP = 128
CONFIG_4 = {**HF_CONFIG, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
              "kv_cache_scheme": None, "quantization_status": "compressed",
              "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None,
                                            "output_activations": None,
                                            "weights": {"num_bits": 4, "type": "int", "symmetric": True,
                                                        "strategy": "group", "group_size": 128, "actorder": None}}}}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
V2 = {**GPTQ, "checkpoint_format": "gptq_v2"}


class Matrix:
    """Random codes, every one of the sixteen among them, and scales of a storage type."""

    def __init__(self, rows, columns, dtype, seed):
        chance = random.Random(seed)
        self.rows, self.columns, self.dtype = rows, columns, dtype
        self.codes = [[chance.randrange(-8, 8) for _ in range(columns)] for _ in range(rows)]
        scales = [chance.uniform(0.02, 0.2) for _ in range(rows * columns // GROUP)]
        self.scales = from_bytes(to_bytes(from_bytes(to_bytes(scales, "F32"), "F32"), dtype), dtype)

    def scale(self, row, group):
        return self.scales[row * (self.columns // GROUP) + group]

    def values(self):
        return [code * self.scale(row, column // GROUP)
                for row, codes in enumerate(self.codes) for column, code in enumerate(codes)]

    def compressed(self, name):
        stem = name.removesuffix("weight")
        words = [sum((codes[c + j] + 8) << 4 * j for j in range(8)) for codes in self.codes
                 for c in range(0, self.columns, 8)]
        return {stem + "weight_packed": ("I32", [self.rows, self.columns // 8], words),
                stem + "weight_scale": (self.dtype, [self.rows, self.columns // GROUP], self.scales),
                stem + "weight_shape": ("I64", [2], [self.rows, self.columns])}

    def gptq(self, name, zero=0x77777777):
        stem = name.removesuffix("weight")
        groups = self.columns // GROUP
        words = [sum((self.codes[row][k + j] + 8) << 4 * j for j in range(8)) for k in range(0, self.columns, 8)
                 for row in range(self.rows)]
        scales = [self.scale(row, group) for group in range(groups) for row in range(self.rows)]
        return {stem + "qweight": ("I32", [self.columns // 8, self.rows], words),
                stem + "scales": (self.dtype, [groups, self.rows], scales),
                stem + "qzeros": ("I32", [groups, self.rows // 8], [zero] * (groups * self.rows // 8)),
                stem + "g_idx": ("I32", [self.columns], [k // GROUP for k in range(self.columns)])}


def bf16(value):
    """Rounded to nearest even, by way of float."""
    bits, = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16))[0]


def quantized(group):
    """(codes, scale) of the scale of least square error among 36."""
    best = None
    for i in range(36):
        scale = bf16((1 - 0.02 * i) * max(map(abs, group)) / 7)
        codes = [min(max(round(value / scale), -8), 7) for value in group]
        error = 0.0
        for code, value in zip(codes, group):
            error += (code * scale - value) ** 2
        if best is None or error < best[0]:
            best = error, codes, scale
    return best[1:]


def unpacked(words):
    return [(word >> 4 * j & 15) - 8 for word in words for j in range(8)]


class QuantizedFoldersTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("tokens.bin", shard([(i * i * 31 + 7 * i) % 70 for i in range(200)]))
        self.plain = random_tensors(CONFIG_4)
        self.matrices = {}
        for seed, (name, (_, shape, _)) in enumerate(self.plain.items()):
            if "_proj" not in name:
                continue
            self.matrices[name] = Matrix(*shape, "BF16" if seed % 2 else "F16", seed)
            self.plain[name] = ("F32", shape, self.matrices[name].values())

    def config(self, changes=None, name="config.json", base=None):
        changes = {"training.seq_len": 8, "training.micro_batch_size": 2, "data.train": "tokens.bin", **(changes or {})}
        return super().config(changes, name, base or {**CONFIG, "model": {}})

    def packed(self, pack):
        """The model's tensors with the matrices of the layers packed."""
        tensors = {}
        for name, tensor in self.plain.items():
            tensors |= pack(self.matrices[name], name) if name in self.matrices else {name: tensor}
        return tensors

    def put_folder(self, name, quantization, tensors, shards=1):
        write_folder(self.path(name), {**CONFIG_4, "quantization_config": quantization}, tensors, shards)

    def weights(self, folder):
        self.train("--init-from", folder, "--export", folder + "_out", "--export-dtype", "float32")
        return read_safetensors(self.path(folder + "_out", "model.safetensors"))

    def test_weights_are_codes_times_scales(self):
        write_folder(self.path("plain"), CONFIG_4, self.plain)
        expected = self.weights("plain")
        name = "model.layers.0.mlp.down_proj.weight"
        self.assertEqual(expected[name][2], self.matrices[name].values())
        for folder, config, tensors, shards in (
                ("compressed", COMPRESSED, self.packed(Matrix.compressed), 1),
                ("gptq", GPTQ, self.packed(Matrix.gptq), 1),
                ("sharded", GPTQ, self.packed(Matrix.gptq), 5),
                ("gptq2", V2, self.packed(lambda m, n: Matrix.gptq(m, n, 0x88888888)), 1)):
            with self.subTest(folder):
                self.put_folder(folder, config, tensors, shards)
                self.assertEqual(self.weights(folder), expected)
                self.assertIn(f"weights from {folder}, 7 matrices of 4-bit integers\n",
                              self.train("--init-from", folder, "--eval").out)
        # One wrong code is seen.
        tensors = self.packed(Matrix.gptq)
        tensors["model.layers.0.mlp.down_proj.qweight"][2][77] ^= 1 << 12
        self.put_folder("wrong", GPTQ, tensors)
        self.assertEqual([a == b for a, b in zip(self.weights("wrong")[name][2], expected[name][2])].count(False), 1)

    def logits(self, folder):
        """Of every position of a prompt, decoded token by token, and what was said."""
        name = self.path(folder + ".logits")
        done = subprocess.run([GENERATE, "--model", folder, "--prompt", "!\"#$%&'()*+,-./0123456789", "--score",
                               "--context", "64", "--device", "cpu", "--logits", name], cwd=self.folder,
                              env=self.environment(1), capture_output=True, timeout=TIMEOUT_S, check=False, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(name, "rb") as file:
            data = file.read()
        return struct.unpack(f"<{len(data) // 4}f", data), done.stderr

    def test_generation_keeps_the_codes(self):
        config = {**CONFIG_4, **QWEN2, "vocab_size": 256}  # bytes
        self.plain = random_tensors(config)
        for matrix in self.matrices.values():  # of another type, scales would be rounded to bf16
            matrix.scales = [bf16(scale) for scale in matrix.scales]
            matrix.dtype = "F32"
        folders = {"compressed": (COMPRESSED, Matrix.compressed), "gptq": (GPTQ, Matrix.gptq)}
        for name, (quantization, pack) in folders.items():
            write_folder(self.path(name), {**config, "quantization_config": quantization}, self.packed(pack))
        for name, matrix in self.matrices.items():
            self.plain[name] = ("F32", self.plain[name][1], matrix.values())
        write_folder(self.path("floats"), config, self.plain)
        expected, said = self.logits("floats")
        self.assertNotIn("4-bit", said)
        for name in folders:
            found, said = self.logits(name)
            self.assertIn("7 matrices of 4-bit integers", said)
            self.assertEqual(found, expected)

    def test_written_codes_are_those_of_the_search(self):
        plain = random_tensors(CONFIG_4, seed=5)
        down, norm = "model.layers.0.mlp.down_proj.weight", "model.norm.weight"
        values = plain[down][2]
        values[128:256] = [0.0] * 128  # a group of zeros
        values[256:384] = [1e-30 * value for value in values[256:384]]
        values[300] = 100.0  # one outlier
        write_folder(self.path("plain"), CONFIG_4, plain)
        self.train("--init-from", "plain", "--export", "packed", "--export-dtype", "int4")
        packed = read_safetensors(self.path("packed", "model.safetensors"))
        self.assertEqual([name for name in packed if "down_proj" in name],
                         [down + end for end in ("_packed", "_scale", "_shape")])
        self.assertEqual(packed[norm][::2], ("BF16", [bf16(value) for value in plain[norm][2]]))
        self.assertEqual(packed["lm_head.weight"][0], "BF16")
        self.assertEqual(packed[down + "_shape"], ("I64", [2], [128, 256]))
        wide = self.weights("packed")
        for name, (_, shape, floats) in plain.items():
            if "_proj" not in name:
                continue
            self.assertEqual(packed[name + "_packed"][:2], ("I32", [shape[0], shape[1] // 8]))
            self.assertEqual(packed[name + "_scale"][:2], ("BF16", [shape[0], shape[1] // 128]))
            codes, scales = unpacked(packed[name + "_packed"][2]), packed[name + "_scale"][2]
            found = [(codes[i:i + 128], scales[i // 128]) for i in range(0, len(codes), 128)]
            groups = [floats[i:i + 128] for i in range(0, len(floats), 128)]
            expected = [quantized(group) if any(group) else ([0] * 128, 1.0) for group in groups]
            self.assertEqual(found, expected, name)
            self.assertEqual(wide[name][2], [code * scales[i // 128] for i, code in enumerate(codes)])
        # The folder computes what the same weights in float32 do.
        losses = [self.train("--init-from", folder, "--eval").out.splitlines()[-1] for folder in ("packed", "packed_out")]
        self.assertRegex(losses[0], "loss")
        self.assertEqual(*losses)
        write_folder(self.path("narrow"), HF_CONFIG, random_tensors(HF_CONFIG))
        self.refuse("--init-from", "narrow", "--export", "out", "--export-dtype", "int4",
                    says=["--export-dtype int4", "no matrix of a layer has a multiple of 128 columns"])
        self.refuse("--init-from", "narrow", "--export", "out", "--export-dtype", "int4", "--calibrate", "4",
                    says=["no matrix of a layer"])

    def test_matrices_without_whole_groups_stay(self):
        config = {**HF_CONFIG, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256}
        plain = {name: (dtype, shape, [bf16(value) for value in values])
                 for name, (dtype, shape, values) in random_tensors(config, seed=5).items()}
        write_folder(self.path("plain"), config, plain)
        for folder, calibrate in (("nearest", []), ("gptq", ["--calibrate", "4"])):
            out = self.train("--init-from", "plain", "--export", folder, "--export-dtype", "int4", *calibrate).out
            # Of a layer, 64 x (64 + 32 + 32 + 64) and 2 x 128 x 64 of 36864.
            self.assertIn("note: 78% of the layers' weights stay in bf16: matrices of 64 columns, which are no multiple "
                          "of 128\n", out)
            packed = read_safetensors(self.path(folder, "model.safetensors"))
            for name, tensor in plain.items():
                if "down_proj" in name:
                    self.assertEqual([packed[name + end][0] for end in ("_packed", "_scale")], ["I32", "BF16"])
                else:
                    self.assertEqual(packed[name][1:], tensor[1:], name)
            with open(self.path(folder, "config.json"), encoding="utf-8") as file:
                ignored = json.load(file)["quantization_config"]["ignore"]
            self.assertEqual(sorted(ignored), sorted(
                ["lm_head"] + [name.removesuffix(".weight") for name in plain if "_proj" in name and "down" not in name]))
            wide = self.weights(folder)
            self.assertTrue(all(wide[name][2] == plain[name][2] for name in plain if "down" not in name))
            self.assertIn(f"weights from {folder}, 2 matrices of 4-bit integers\n",
                          self.train("--init-from", folder, "--eval").out)
            found, said = self.logits(folder)
            self.assertIn("2 matrices of 4-bit integers", said)
            write_folder(self.path(folder + "_floats"), config, wide)
            self.assertEqual(found, self.logits(folder + "_floats")[0])

    def test_calibration(self):
        plain = {name: (dtype, shape, [bf16(value) for value in values])  # what is not rounded is written in bf16
                 for name, (dtype, shape, values) in random_tensors(CONFIG_4, seed=5).items()}
        write_folder(self.path("plain"), CONFIG_4, plain)
        out = self.train("--init-from", "plain", "--export", "gptq", "--export-dtype", "int4", "--calibrate", "7").out
        said = re.findall(r"validation loss (\S+) over (\d+) tokens, perplexity (\S+): (.*)\n", out)
        self.assertEqual([line[3] for line in said], ["as they are", "rounded to nearest", "by GPTQ"])
        for loss, _, perplexity, _ in said:
            self.assertAlmostEqual(math.exp(float(loss)), float(perplexity), delta=1e-4 * float(perplexity))
        self.assertIn("calibration: 8 of 8 sequences\n", out)  # whole micro-batches
        self.assertIn("layer 1 of 1 is rounded\n", out)
        # What is printed is of what is written.
        self.train("--init-from", "plain", "--export", "nearest", "--export-dtype", "int4")
        for folder, (loss, tokens, _, _) in (("plain", said[0]), ("nearest", said[1]), ("gptq", said[2])):
            line = self.train("--init-from", folder, "--eval").out.splitlines()[-1]
            self.assertEqual(line, f"validation loss {loss} over {tokens} tokens", folder)
        gptq, nearest = (read_safetensors(self.path(folder, "model.safetensors")) for folder in ("gptq", "nearest"))
        for name, tensor in gptq.items():
            if not name.endswith("_scale"):  # a row's first group has the same one
                self.assertEqual(tensor == nearest[name], not name.endswith("_packed"), name)
        # A folder of 4-bit weights stays what it is.
        self.train("--init-from", "gptq", "--export", "again", "--export-dtype", "int4")
        self.assertEqual(read_safetensors(self.path("again", "model.safetensors")), gptq)

        self.refuse("--init-from", "plain", "--export", "out", "--export-dtype", "int4", "--calibrate", "9999",
                    says=["--calibrate: 9999 sequences", "data.train has"])
        for arguments in (["--export", "out", "--calibrate", "4"], ["--calibrate", "4"],
                          ["--eval", "--calibrate", "4"]):
            self.refuse("--init-from", "plain", *arguments, code=USAGE, says=["--calibrate: goes with", "int4"])
        self.assertFalse(os.path.exists(self.path("out")))

    def test_what_is_refused_by_key(self):
        weights = COMPRESSED["config_groups"]["group_0"]["weights"]
        for change, says in (({"format": "marlin-24"}, ["format is", "marlin-24", "pack-quantized"]),
                             ({"kv_cache_scheme": {"num_bits": 8}}, ["kv_cache_scheme"]),
                             ({"sparsity_config": {"format": "sparse-24-bitmask"}}, ["sparsity_config.format", "dense"]),
                             ({"config_groups": {}}, ["config_groups is empty"]),
                             ({"num_bits": 8}, ["config_groups.group_0.weights.num_bits is 8", "4 bits"]),
                             ({"symmetric": False}, ["symmetric is false", "zero points"]),
                             ({"group_size": 64}, ["group_size is 64", "128 columns"]),
                             ({"strategy": "channel"}, ["strategy is", "128 columns"]),
                             ({"actorder": "group"}, ["actorder is", "reorder"]),
                             ({"type": "float"}, ["type is", "integers"])):
            with self.subTest(change):
                config = copy.deepcopy(COMPRESSED)
                place = config if next(iter(change)) not in weights else config["config_groups"]["group_0"]["weights"]
                place.update(change)
                self.refuse_folder(config, {}, says)
        for change, says in (({"bits": 3}, ["bits is 3", "4 bits"]), ({"sym": False}, ["sym is false"]),
                             ({"desc_act": True}, ["desc_act is true", "reorder"]),
                             ({"group_size": -1}, ["group_size is -1"]),
                             ({"checkpoint_format": "marlin"}, ["checkpoint_format"]),
                             ({"quant_method": "awq"}, ["quantized (awq)", "GPTQ"])):
            with self.subTest(change):
                self.refuse_folder({**GPTQ, **change}, {}, says)

    def test_what_is_refused_by_tensor(self):
        down = "model.layers.0.mlp.down_proj."
        compressed, gptq = self.packed(Matrix.compressed), self.packed(Matrix.gptq)
        for config, tensors, changes, says in (
                (COMPRESSED, compressed, {"weight_scale": None}, ["lacks its tensor", "weight_scale"]),
                (COMPRESSED, compressed, {"weight_scale": ("F32", [128, 4], [0.0] * 512)}, ["[128, 4]", "[128, 2]"]),
                (COMPRESSED, compressed, {"weight_shape": ("I64", [2], [128, 255])}, ["[128, 255]", "[128, 256]"]),
                (COMPRESSED, compressed, {"weight_packed": ("F32", [128, 32], [0.0] * 4096)}, ["F32", "I32"]),
                (COMPRESSED, compressed, {"weight_g_idx": ("I32", [256], [0] * 256)}, ["g_idx", "reorders"]),
                (COMPRESSED, compressed, {"weight_zero_point": ("I32", [128, 2], [0] * 256)}, ["zero points"]),
                (GPTQ, gptq, {"g_idx": ("I32", [256], [k // 128 ^ (k == 200) for k in range(256)])},
                 ["g_idx", "element 200 is 0"]),
                (GPTQ, gptq, {"qzeros": ("I32", [2, 16], [0x77777777] * 31 + [0x77777776])}, ["zero points other than"]),
                (GPTQ, gptq, {"scales": None}, ["lacks its tensor", "scales"]),
                (GPTQ, gptq, {"bias": ("F16", [128], [0.0] * 128)}, ["bias"]),
                (GPTQ, gptq, {"qweight": None}, ["quantized in a way", "down_proj"])):
            with self.subTest(changes.keys(), says=says):
                changed = {**tensors, **{down + end: value for end, value in changes.items()}}
                self.refuse_folder(config, {name: value for name, value in changed.items() if value}, says)

    def refuse_folder(self, quantization, tensors, says):
        name = f"bad{len(os.listdir(self.folder))}"
        write_folder(self.path(name), {**CONFIG_4, "quantization_config": quantization}, tensors)
        self.refuse("--init-from", name, "--eval", says=says)


if __name__ == "__main__":
    unittest.main()
