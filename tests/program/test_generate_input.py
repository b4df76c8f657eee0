"""coda_generate: input that it must not take for something else, and an end in the midst of reading or scoring it."""

import json
import os
import signal
import struct
import subprocess
import sys
import unittest

from program import INTERRUPTED, PROGRAM, ROOT, RUNTIME, TIMEOUT_S, USAGE, handles
from test_generate import GENERATE, SHORT, GenerateTestCase

sys.path.insert(0, os.path.join(ROOT, "tests"))
from sanitizer import sanitized  # noqa: E402


class InputTest(GenerateTestCase):
    def start(self, *arguments, **options):
        process = subprocess.Popen([GENERATE, "--model", "run", *arguments], cwd=self.folder, env=self.environment(1),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.addCleanup(process.communicate)
        return process

    def test_numbers_of_the_command_line(self):
        self.train(changes=SHORT)
        run = ["--model", "run", "--prompt", "a", "--tokens", "2"]
        largest = self.answers(*run, "--json", "--seed", str(2**64 - 1))
        self.assertEqual(len(largest[1]["tokens"]), 2)
        for seed in ("-1", str(2**64), "1.5", ""):
            with self.subTest(seed=seed):
                self.refuse_generate(*run, "--seed", seed, code=USAGE, says=["--seed", "an integer from 0 to 2^64 - 1"])
        for flag in ("--temperature", "--top-p", "--min-p", "--repetition-penalty", "--top-k", "--watchdog"):
            with self.subTest(flag):
                self.refuse_generate(*run, flag, "", code=USAGE, says=flag)
        self.refuse_generate(*run, "--watchdog", "nan", code=USAGE, says=["--watchdog", "nan"])
        for device in ("1", "tpu", ""):
            self.refuse_generate(*run, "--device", device, code=USAGE, says=["--device", 'one of "auto", "cuda", "cpu"'])

    def test_a_prompt_of_standard_input(self):
        self.train(changes=SHORT)
        self.train("--resume", "--export", "exported", "--export-dtype", "float32", changes=SHORT)
        with open(self.path("exported", "config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "bos_token_id": 1}  # so that an empty prompt is one
        self.write("exported/config.json", json.dumps(config).encode())
        with self.subTest("an interrupt ends the wait for it"):
            process = self.start("--prompt-file", "-", stdin=subprocess.PIPE)
            process.stdin.write(b"ab\xc3")
            process.stdin.flush()
            self.wait_until(lambda: handles(process.pid, signal.SIGINT), process, "handler")
            process.send_signal(signal.SIGINT)
            self.assertEqual((process.wait(TIMEOUT_S), process.stdout.read()), (INTERRUPTED, b""))
        with self.subTest("one that cannot be read is not an empty one"):
            folder = os.open(self.folder, os.O_RDONLY)
            self.addCleanup(os.close, folder)
            done = subprocess.run([GENERATE, "--model", "exported", "--prompt-file", "-"], cwd=self.folder, stdin=folder,
                                  env=self.environment(1), capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((done.returncode, done.stdout), (RUNTIME, b""))
            self.assertIn(b"read standard input: Is a directory", done.stderr)
        with self.subTest("a file that is too long is no mistake of the command line"):
            self.write("long.txt", b"a" * 64)
            self.refuse_generate("--model", "run", "--prompt-file", "long.txt", says=["long.txt", "64 tokens"])

    def test_a_line_with_a_nul_byte(self):
        self.train(changes=SHORT)
        self.write("p.jsonl", b'{"prompt": "a"}\0{"prompt": "b"}\n')
        self.refuse_generate("--model", "run", "--prompts", "p.jsonl", says=["p.jsonl:1:", ":16: a NUL byte"])

    def test_a_model_that_cannot_be(self):
        self.train(changes=SHORT)
        self.train("--resume", "--export", "exported", "--export-dtype", "float32", changes=SHORT)
        with open(self.path("exported", "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        for changes, says in (({"eos_token_id": 99999}, ["exported/config.json", "eos_token_id 99999"]),
                              ({"eos_token_id": list(range(33))}, ["eos_token_id", "33 end tokens", "up to 32"])):
            self.write("exported/config.json", json.dumps({**config, **changes}).encode())
            result = self.refuse_generate("--model", "exported", "--prompt", "a", says=says)
            self.assertNotIn("weights from", result.err, "it is refused before the weights are read")

    @unittest.skipIf(sanitized(PROGRAM), "shadow memory takes more than the limits of this test")
    def test_too_little_memory(self):
        self.train(changes={**SHORT, "model.max_position_embeddings": 4000000})
        said = 0
        for megabytes in range(60, 400, 20):  # where it ends depends on the machine
            limit = f"ulimit -v {megabytes * 1024}; exec \"$0\" \"$@\""
            done = subprocess.run(["bash", "-c", limit, GENERATE, "--model", "run", "--prompt", "a", "--tokens", "2",
                                   "--context", "200000"], cwd=self.folder, env=self.environment(1),
                                  capture_output=True, timeout=TIMEOUT_S, check=False)
            if done.stderr.startswith(b"coda_generate: "):  # before that the loader ends it, naming the program's path
                said += 1
                self.assertEqual((done.returncode, done.stdout), (RUNTIME, b""), done.stderr)
                self.assertRegex(done.stderr, rb"\Acoda_generate: .*memory.*\n\Z")
                self.assertNotIn(b"std::", done.stderr)
        self.assertGreater(said, 0)

    def test_scores(self):
        self.train(changes={**SHORT, "model.max_position_embeddings": 4000000})
        with self.subTest("lines are ASCII"):
            name = self.lines({"id": "a\u2028\U0001f600", "prompt": "abc"})
            out = self.generate("--model", "run", "--score", "--prompts", name).out
            self.assertTrue(out.isascii())
            self.assertEqual(json.loads(out)["id"], "a\u2028\U0001f600")
        with self.subTest("a text without a loss is found before any is scored"):
            name = self.lines({"prompt": "abc"}, {"prompt": "a"})
            result = self.refuse_generate("--model", "run", "--score", "--prompts", name, "--logits", "l.f32",
                                          says=["p.jsonl:2", "one token has no loss"])
            self.assertEqual(result.out, "")
            self.refuse_generate("--model", "run", "--score", "--prompt", "a", code=USAGE, says="one token has no loss")
        with self.subTest("after an interrupt the logits belong to the texts whose loss was printed"):
            self.write("p.jsonl", (json.dumps({"prompt": "ab"}) + "\n" + json.dumps({"prompt": "a" * 90000}) +
                                   "\n").encode())
            process = self.start("--score", "--prompts", "p.jsonl", "--logits", "l.f32", "--context", "100000")
            line = process.stdout.readline()  # while the other text is scored
            process.send_signal(signal.SIGINT)
            self.assertEqual((process.wait(TIMEOUT_S), process.stdout.read()), (INTERRUPTED, b""))
            self.assertEqual(json.loads(line)["tokens"], 1)
            self.assertEqual(len(struct.unpack("<256f", self.read("l.f32"))), 256)


if __name__ == "__main__":
    unittest.main()
