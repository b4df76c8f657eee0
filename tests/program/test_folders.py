"""Folders of models and runs: what begins and ends a text, what a resumed run needs, shards without number."""

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import unittest

from program import CONFIG, DONE, PROGRAM, ROOT, TIMEOUT_S, ProgramTestCase, changed, shard

sys.path.insert(0, os.path.join(ROOT, "tests", "tokenize"))
from tokenizing import small_tokenizer

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
TOKENIZER = small_tokenizer("qwen2")  # 256 bytes, 6 merges, <|endoftext|>, <|im_start|>, <|im_end|>
IDS = {**TOKENIZER["model"]["vocab"], **{token["content"]: token["id"] for token in TOKENIZER["added_tokens"]}}
BEGIN, TURN = IDS["<|endoftext|>"], IDS["<|im_end|>"]
VOCAB = len(IDS)
TEMPLATE = {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [BEGIN], "tokens": ["<|endoftext|>"]}}}


def ids_of(text):
    return [IDS[character] for character in text]


class FoldersTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.write("tokens.bin", shard(ids_of("abc" * 200)))
        if not os.path.exists(os.path.join(os.path.dirname(PROGRAM), "coda_tokenize")):
            self.skipTest("a build without tokenizers")

    def config(self, changes=None, name="config.json", base=None):
        base = changed(CONFIG, {"model.vocab_size": VOCAB, "data.train": "tokens.bin", "training.steps": 2,
                                "model.initializer_range": 0.5, "validation.interval": 0})
        return super().config(changes, name, base)

    def put(self, name, document):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        self.write(name, document.encode() if isinstance(document, str) else json.dumps(document).encode())

    def model_folder(self, name, tokenizer=TOKENIZER, config=None, **files):
        """A Hugging Face folder of random weights with a tokenizer and more files."""
        self.train("--export", name, changes={"output.directory": "unused"})
        with open(self.path(name, "config.json"), encoding="utf-8") as file:
            document = {**json.load(file), **(config or {})}
        self.put(f"{name}/config.json", document)
        if tokenizer:
            self.put(f"{name}/tokenizer.json", tokenizer)
        for stem, content in files.items():
            self.put(f"{name}/{stem}" + (".jinja" if stem == "chat_template" else ".json"), content)

    def generate(self, *arguments, requests=None):
        given = None if requests is None else "".join(json.dumps(line) + "\n" for line in requests)
        done = subprocess.run([GENERATE, "--device", "cpu", *arguments, *(["--prompts", "-"] if requests else [])],
                              cwd=self.folder, env=self.environment(1), input=given, capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, DONE, done.stderr)
        return done

    def scores(self, model, *flags, requests):
        out = self.generate("--model", model, "--score", *flags, requests=requests).stdout
        return [json.loads(line)["loss"] for line in out.splitlines()]

    def test_what_begins_a_prompt(self):
        fast = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>"}
        llama = {**fast, "tokenizer_class": "LlamaTokenizerFast"}
        with_template = {**TOKENIZER, "post_processor": TEMPLATE}
        rows = [
            ("a template", with_template, {**fast, "add_bos_token": False}, [], True, "template"),
            ("no template", TOKENIZER, {**fast, "add_bos_token": True}, [], False, "ask for none"),
            ("a Llama class", TOKENIZER, llama, [], True, "default of LlamaTokenizerFast"),
            ("a Llama class that adds none", with_template, {**llama, "add_bos_token": False}, [], False,
             "add_bos_token false"),
            ("yes", TOKENIZER, fast, ["--bos", "yes"], True, "--bos yes"),
            ("no", TOKENIZER, llama, ["--bos", "no"], False, "--bos no"),
        ]
        self.model_folder("hf", config={"bos_token_id": BEGIN})
        text = ids_of("abca")
        begun, bare = self.scores("hf", requests=[{"tokens": [BEGIN, *text]}, {"tokens": text}])
        self.assertNotEqual(begun, bare)
        for name, tokenizer, settings, flags, begins, note in rows:
            with self.subTest(name):
                self.put("hf/tokenizer.json", tokenizer)
                self.put("hf/tokenizer_config.json", settings)
                asked = [{"prompt": "abca"}, {"prompt": "<|endoftext|>abca"}]
                self.assertEqual(self.scores("hf", *flags, requests=asked), [begun if begins else bare, begun])
                said = self.generate("--model", "hf", "--score", *flags, requests=asked).stderr
                self.assertIn("note: a text begins with " + ("<|endoftext|>" if begins else "no token"), said)
                self.assertIn(note, said)

    def test_samples_begin_and_end_as_coda_generate_does(self):
        self.put("tok/tokenizer.json", {**TOKENIZER, "post_processor": TEMPLATE})
        changes = {"data.tokenizer": "tok/tokenizer.json", "samples.interval": 2, "samples.tokens": 6,
                   "samples.prompts": ["abc", "<|endoftext|>abc"], "samples.temperature": 0,
                   "training.seq_len": 16, "model.bos_token_id": TURN}
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_end|>"}

        def samples(directory, **more):
            done = self.train(changes={**changes, "output.directory": directory, **more})
            return [record["tokens"] for record in self.log(directory).records if "sample" in record], done.out

        def made(directory, *starts):
            asked = [{"tokens": start, "max_tokens": 6, "temperature": 0} for start in starts]
            out = self.generate("--model", directory, requests=asked).stdout
            return [json.loads(line)["tokens"] for line in out.splitlines()]

        text = ids_of("abc")
        found, out = samples("template")  # whatever model.bos_token_id is, and not twice
        with_begin, without, with_bos = made("template", [BEGIN, *text], text, [TURN, *text])
        self.assertEqual(found, [with_begin, with_begin])
        self.assertNotEqual(with_begin, without)
        self.assertNotEqual(with_bos, without)
        self.assertIn("note: of the samples, a text begins with <|endoftext|>", out)

        self.put("tok/tokenizer_config.json", settings)
        self.put("tok/tokenizer.json", TOKENIZER)
        found, out = samples("none")
        self.assertEqual(found, [without, with_begin])
        self.assertIn("begins with no token", out)
        os.remove(self.path("tok/tokenizer_config.json"))
        found, out = samples("own")
        self.assertEqual(found, [with_bos, *made("own", [TURN, BEGIN, *text])])
        self.assertIn("model.bos_token_id", out)

        self.put("tok/generation_config.json", {"eos_token_id": [0, with_bos[1]]})
        self.assertEqual(samples("ends")[0][0], with_bos[:with_bos.index(with_bos[1]) + 1])
        ends = {"model.eos_token_id": [0, with_bos[2]]}
        self.assertEqual(samples("listed", **ends)[0][0], with_bos[:with_bos.index(with_bos[2]) + 1])
        os.remove(self.path("tok/generation_config.json"))

        # Masks say where conversations begin: the token does not divide a prompt.
        count = 600
        self.write("tokens.mask", struct.pack("<256i", 20251125, 1, count, *[0] * 253) + bytes([1]) * count)
        found, _ = samples("masked", **{"data.document_mask": True, "samples.prompts": ["abc<|im_end|>abc"]})
        self.assertEqual(found, made("masked", [TURN, *text, TURN, *text]))
        self.assertNotEqual(found, made("masked", [TURN, *text]))

    def test_a_stop_text_that_is_one_special_token_is_an_end_token(self):
        self.model_folder("hf")
        asked = [{"prompt": "a", "max_tokens": 200, "temperature": 100.0, "seed": seed, "stop": "<|im_end|>"}
                 for seed in range(12)]
        answers = [json.loads(line) for line in self.generate("--model", "hf", requests=asked).stdout.splitlines()]
        ended = [answer for answer in answers if TURN in answer["tokens"]]
        self.assertTrue(ended)
        for answer in ended:
            self.assertEqual(answer["tokens"].index(TURN), len(answer["tokens"]) - 1)
            self.assertEqual(answer["finish"], "stop")
        for stop in ("<|im_end|>\n", " <|im_end|>", "<|im_end|><|im_end|>"):
            done = subprocess.run([GENERATE, "--device", "cpu", "--model", "hf", "--prompt", "a", "--stop", stop],
                                  cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("has the special token <|im_end|> in it", done.stderr)

    def test_a_run_of_a_folder_continues_without_it(self):
        self.model_folder("hf", config={"eos_token_id": 3}, generation_config={"eos_token_id": [BEGIN, TURN]},
                    tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"},
                    chat_template="{{ messages }}")
        bare = self.config({"model": {}})
        self.run_program("--config", bare, "--init-from", "hf")
        self.assertEqual(self.log().header["config"]["data"]["tokenizer"], "hf/tokenizer.json")
        self.assertEqual(self.log().header["config"]["model"]["eos_token_id"], [BEGIN, TURN])
        shutil.move(self.path("hf"), self.path("gone"))
        for arguments in ([], ["--init-from", "hf"]):
            steps = str(3 + len(arguments))
            self.run_program("--config", bare, "--resume", "--training.steps", steps, *arguments)
        meta = json.loads(self.read(f"run/checkpoints/step_{int(steps):08}/meta.json"))
        self.assertEqual(meta["state"]["tokenizer"]["file"], "run/tokenizer/tokenizer.json")
        self.run_program("--config", bare, "--resume", "--export", "out")
        self.assertEqual(self.tree("out"), ["chat_template.jinja", "config.json", "generation_config.json",
                                            "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
        for name in ("chat_template.jinja", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            self.assertEqual(self.read("out", name), self.read("gone", name))
        exported = json.loads(self.read("out/config.json"))
        self.assertEqual(exported["eos_token_id"], [BEGIN, TURN])
        self.assertEqual(exported["torch_dtype"], "bfloat16")
        self.run_program("--config", bare, "--resume", "--export", "wide", "--export-dtype", "float32")
        self.assertGreater(os.path.getsize(self.path("wide/model.safetensors")),
                           1.8 * os.path.getsize(self.path("out/model.safetensors")))
        self.refuse("--export-dtype", "float32", code=2, says=["--export-dtype: goes with --export"])
        self.refuse("--export", "x", "--export-dtype", "f16", code=2, says=["bfloat16, float32 or int4"])

    def test_a_run_of_a_folder_keeps_what_the_folder_had(self):
        self.model_folder("hf", config={"bos_token_id": BEGIN}, chat_template="{{ messages }}",
                          tokenizer_config={"tokenizer_class": "PreTrainedTokenizerFast"})
        full = self.config()  # with a model section that does not have the folder's bos_token_id
        self.run_program("--config", full, "--init-from", "hf")
        self.put("hf/tokenizer.json", {**TOKENIZER, "version": "2.0"})
        self.put("hf/tokenizer_config.json", {"tokenizer_class": "Other"})
        self.put("hf/chat_template.jinja", "another")
        self.run_program("--config", full, "--resume", "--training.steps", "3")
        self.run_program("--config", full, "--resume", "--export", "out")
        self.assertEqual(json.loads(self.read("out/tokenizer.json")), TOKENIZER)
        self.assertEqual(self.read("out/chat_template.jinja"), b"{{ messages }}")
        self.assertNotIn(b"Other", self.read("out/tokenizer_config.json"))
        # Another tokenizer is not exported with the run's weights.
        done = self.run_program("--config", full, "--resume", "--export", "other", "--data.tokenizer", "hf/tokenizer.json",
                                expect=2)
        self.assertIn("SHA-256", done.err)
        self.assertFalse(os.path.exists(self.path("other")))

    def test_a_run_of_a_folder_does_not_start_again_without_it(self):
        self.model_folder("hf")
        full = self.config()
        self.run_program("--config", full, "--init-from", "hf")
        shutil.rmtree(self.path("run/checkpoints"))
        done = self.run_program("--config", full, "--resume", expect=2)
        self.assertIn("the run began with --init-from", done.err)
        self.run_program("--config", full, "--resume", "--init-from", "hf")

    def test_tokens_beyond_the_vocabulary_end_nothing(self):
        self.model_folder("hf", generation_config={"eos_token_id": [VOCAB, TURN]})
        self.run_program("--config", self.config({"model": {}}), "--init-from", "hf")
        self.assertEqual(self.log().header["config"]["model"]["eos_token_id"], TURN)
        self.generate("--model", "hf", "--tokens", "2", "--prompt", "a")
        for key in ("bos_token_id", "eos_token_id"):
            self.model_folder(key, config={key: VOCAB + 9})
            self.refuse("--init-from", key, changes={"model": {}}, says=[f"{key}/config.json", f"{key} {VOCAB + 9}"])

    def test_end_tokens_of_a_folder_without_a_tokenizer_are_kept(self):
        self.model_folder("hf", tokenizer=None, config={"eos_token_id": [5, 6]})
        bare = self.config({"model": {}})
        self.run_program("--config", bare, "--init-from", "hf")
        self.run_program("--config", bare, "--resume", "--export", "out")
        self.assertEqual(json.loads(self.read("out/generation_config.json"))["eos_token_id"], [5, 6])

    def test_more_shards_than_descriptors(self):
        for i in range(700):
            os.makedirs(self.path("many"), exist_ok=True)
            self.write(f"many/{i:04}.bin", shard([i % VOCAB] * 40))
        changes = {"data.train": "many/*.bin", "data.val": "tokens.bin", "training.steps": 20}

        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (400, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        self.train(changes={**changes, "output.directory": "few"}, preexec_fn=limit)
        self.train(changes=changes)
        self.assertEqual(self.log("few").losses(), self.log("run").losses())

    def test_folders_that_are_refused_by_name(self):
        self.model_folder("hf")
        for changes, says in (({"model_type": "qwen3_moe"}, ["hf/config.json", "experts"]),
                              ({"quantization_config": {"quant_method": "awq"}}, ["quantized (awq)"]),
                              ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
                                "attention_bias": True, "use_sliding_window": True,
                                "layer_types": ["full_attention", "sliding_attention"]},
                               ["layer_types: windows in some of the layers"])):
            with open(self.path("hf/config.json"), encoding="utf-8") as file:
                before = file.read()
            self.put("hf/config.json", {**json.loads(before), **changes})
            self.refuse("--init-from", "hf", changes={"model": {}}, says=says)
            self.put("hf/config.json", before)
        self.put("adapter/adapter_config.json", {})
        self.refuse("--init-from", "adapter", changes={"model": {}}, says=["adapter", "merge it"])
        done = subprocess.run([GENERATE, "--model", "adapter", "--prompt", "a"], cwd=self.folder, capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)
        self.assertIn("an adapter without the model", done.stderr)
        self.put("hf/adapter_config.json", {})
        os.remove(self.path("hf/model.safetensors"))
        self.refuse("--init-from", "hf", changes={"model": {}}, says=["it is an adapter"])


if __name__ == "__main__":
    unittest.main()
