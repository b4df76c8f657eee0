"""coda_generate: from a run and from a Hugging Face folder, text and JSON Lines, and what it refuses."""

import json
import math
import os
import re
import signal
import struct
import subprocess
import unittest

from program import (CONFIG, DONE, INTERRUPTED, NON_FINITE, PROGRAM, RUNTIME, TIMEOUT_S, USAGE, ProgramTestCase,
                     Result, changed)

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
PHRASE = "the quick brown fox jumps over the lazy dog. "
OVERFIT = changed(CONFIG, {"model.hidden_size": 32, "training.seq_len": 64, "training.micro_batch_size": 8,
                           "training.steps": 150, "validation": {"interval": 0, "batches": 1}})
EXPORT = ("--resume", "--export", "exported", "--export-dtype", "float32")
SHORT = {"training.steps": 2}  # nearly uniform, so that a wrong bit or seed shows
FIGURES = re.compile(r"^(\d+) prompt tokens in [\d.]+ ms \| first token after [\d.]+ ms \| (\d+) tokens")


class GenerateTestCase(ProgramTestCase):
    def config(self, changes=None, name="config.json", base=None):
        return super().config(changes, name, base or OVERFIT)

    def generate(self, *arguments, expect=DONE, stdin=b"", threads=1):
        """A run of coda_generate, whose output and messages must be whole characters."""
        done = subprocess.run([GENERATE, *arguments], cwd=self.folder, env=self.environment(threads), input=stdin,
                              capture_output=True, timeout=TIMEOUT_S, check=False)
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        self.assertEqual(result.code, expect, result)
        return result

    def text(self, *arguments, **options):
        out = self.generate("--model", "run", *arguments, **options).out
        self.assertTrue(out.endswith("\n"))
        return out[:-1]

    def answers(self, *arguments, **options):
        """By id; the lines are checked to be of the form that docs/FORMATS.md gives."""
        found = {}
        for line in self.generate(*arguments, **options).out.splitlines():
            answer = json.loads(line)
            self.assertEqual(list(answer), ["id", "text", "tokens", "finish", "prompt_tokens", "ms"])
            self.assertNotIn(answer["id"], found)
            found[answer["id"]] = answer
        return found

    def refuse_generate(self, *arguments, code=RUNTIME, says=(), stdin=b""):
        before = self.tree()
        result = self.generate(*arguments, expect=code, stdin=stdin)
        message = result.err.splitlines()[-1]
        self.assertRegex(message, r"\Acoda_generate: \S", result)
        self.assertNotRegex(message, r"json\.exception|terminate called|std::|filesystem error", result)
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, message)
        self.assertEqual(self.tree(), before)
        return result

    def lines(self, *requests, name="p.jsonl"):
        return self.write(name, "".join(json.dumps(each) + "\n" for each in requests).encode())


class RunTest(GenerateTestCase):
    """The newest checkpoint of a run whose tokens are bytes."""

    def test_text_goes_on_as_the_model_has_learnt_it(self):
        self.write("text.txt", PHRASE.encode() * 60)
        self.train()
        whole = PHRASE * 3
        before = self.tree()
        for prompt, tokens in (("the quick brown ", 40), ("ver the lazy", 30), ("j", 1)):
            start = whole.index(prompt) + len(prompt)
            with self.subTest(prompt):
                greedy = self.text("--prompt", prompt, "--tokens", str(tokens), "--temperature", "0")
                self.assertEqual(greedy, whole[start:start + tokens])
        with self.subTest("figures"):
            err = self.generate("--model", "run", "--prompt", "the quick", "--tokens", "5").err
            self.assertEqual(FIGURES.match(err.splitlines()[-1]).groups(), ("9", "5"))
        with self.subTest("guesses that come true"):
            arguments = ["--model", "run", "--prompt", PHRASE + "the quick", "--tokens", "90", "--context", "200",
                         "--temperature", "0"]
            plain, guessed = self.generate(*arguments), self.generate(*arguments, "--lookup")
            self.assertEqual(guessed.out, plain.out)
            self.assertNotIn("per step", plain.err)
            self.assertGreater(float(re.search(r" tok/s, ([\d.]+) per step", guessed.err)[1]), 4)
            self.assertNotIn("penalty", guessed.err)
            penalty = self.generate(*arguments, "--lookup", "--repetition-penalty", "1.5")
            self.assertIn("note: with a repetition penalty, here 1.5, --lookup guesses nothing", penalty.err)
            self.assertNotIn("per step", penalty.err)
        with self.subTest("stop texts"):
            arguments = ["--prompt", "the quick brown ", "--temperature", "0"]
            self.assertEqual(self.text(*arguments, "--stop", "over"), "fox jumps ")
            self.assertEqual(self.text(*arguments, "--stop", "lazy", "--stop", "mps o"), "fox ju")
            self.assertEqual(self.text(*arguments, "--stop", "[a,b]", "--tokens", "5"), "fox j")
        with self.subTest("a file, standard input, and a prompt of any bytes that are text"):
            self.write("prompt.txt", b"the quick brown ")
            arguments = ["--temperature", "0", "--tokens", "9"]
            self.assertEqual(self.text("--prompt-file", "prompt.txt", *arguments), "fox jumps")
            self.assertEqual(self.text("--prompt-file", "-", *arguments, stdin=b"the quick brown "), "fox jumps")
            self.write("nul.txt", b"a\0b")
            self.assertEqual(self.answers("--model", "run", "--prompt-file", "nul.txt", "--json")[1]["prompt_tokens"], 3)
        with self.subTest("the end of the context"):
            answer = self.answers("--model", "run", "--prompt", "the quick", "--context", "20", "--json")[1]
            self.assertEqual((answer["finish"], len(answer["tokens"])), ("length", 11))
        with self.subTest("the same weights as a Hugging Face folder"):
            self.train(*EXPORT)
            arguments = ["--prompt", "jumps over ", "--temperature", "0.9", "--seed", "3"]
            self.assertEqual(self.generate("--model", "exported", *arguments).out,
                             self.generate("--model", "run", *arguments).out)
            self.assertEqual(self.tree(), sorted({*before, "nul.txt", "prompt.txt", "exported",
                                                  *(f"exported/{name}" for name in self.tree("exported"))}))
            with open(self.path("exported", "generation_config.json"), "w", encoding="utf-8") as file:
                json.dump({"do_sample": False, "eos_token_id": [ord("v"), 0], "num_beams": 4}, file)
            answer = self.generate("--model", "exported", "--prompt", "jumps o", "--json", "--tokens", "50")
            self.assertIn("note: generation_config.json has num_beams", answer.err)
            answer = json.loads(answer.out)
            self.assertEqual((answer["text"], answer["tokens"], answer["finish"]), ("", [ord("v")], "stop"))

    def test_a_sequence_has_the_same_tokens_alone_and_beside_others(self):
        self.train(changes=SHORT)
        requests = [{"id": f"q{i}", "prompt": "prompt "[:i % 7 + 1] + str(i), "max_tokens": 3 + 5 * i % 17, "seed": i,
                     "temperature": 0.5 + i % 3, "top_k": i % 4 * 10, "top_p": 0.8 + 0.05 * (i % 4), "min_p": 0.01,
                     "repetition_penalty": 1 + 0.1 * (i % 2)} for i in range(11)]
        requests.append({"id": 77, "tokens": [1, 2, 200], "temperature": 0, "max_tokens": 9})
        requests.append({"id": "defaults", "prompt": "x"})
        name = self.lines(*requests)
        arguments = ["--model", "run", "--tokens", "12", "--seed", "5"]

        def made(answers):
            return {key: (each["text"], each["tokens"], each["finish"], each["prompt_tokens"])
                    for key, each in answers.items()}

        alone = made(self.answers(*arguments, "--prompts", name))
        self.assertEqual(list(alone), [each["id"] for each in requests])
        self.assertEqual([len(alone[each["id"]][1]) for each in requests],
                         [each.get("max_tokens", 12) for each in requests])
        for batch in ("2", "5", "8"):
            with self.subTest(batch=batch):
                self.assertEqual(made(self.answers(*arguments, "--prompts", name, "--batch", batch, threads=2)), alone)
        for arguments_of_guesses in (["--lookup"], ["--lookup", "--batch", "2"]):
            with self.subTest(arguments_of_guesses):
                self.assertEqual(made(self.answers(*arguments, "--prompts", name, *arguments_of_guesses)), alone)
        piped = made(self.answers(*arguments, "--prompts", "-", "--batch", "3", stdin=self.read(name)))
        self.assertEqual(piped, alone)
        with self.subTest("streamed text is the answer's"):
            out = self.text("--prompt", "x", "--tokens", "12", "--seed", "5")
            self.assertEqual(out, alone["defaults"][0])
            self.assertIn("\ufffd", "".join(text for text, *_ in alone.values()))  # bytes that are no text came
        self.assertNotEqual(self.text("--prompt", "x", "--seed", "1"), self.text("--prompt", "x", "--seed", "2"))

    def test_a_program_may_wait_for_each_answer(self):
        self.train(changes=SHORT)
        process = subprocess.Popen([GENERATE, "--model", "run", "--prompts", "-", "--batch", "4"], cwd=self.folder,
                                   env=self.environment(1), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        for index in range(3):
            process.stdin.write(json.dumps({"prompt": "a", "id": index, "max_tokens": 3}).encode() + b"\n")
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["id"], index)
        process.stdin.write(b'{"prompt": "a", "max_tokens": 40, "id": "last"}\n{"prompt": 3}\n')
        process.stdin.close()
        self.assertEqual(json.loads(process.stdout.readline())["id"], "last")  # those on their way are finished first
        self.assertIn(b"coda_generate: standard input:5: prompt: expected a string", process.stderr.read())
        self.assertEqual(process.wait(TIMEOUT_S), RUNTIME)
        process.stdin = None

    def test_an_interrupt_leaves_what_was_made(self):
        self.train(changes={**SHORT, "model.max_position_embeddings": 4000000})
        requests = self.lines({"prompt": "abc", "max_tokens": 1}, {"prompt": "abc"})
        for arguments in (["--prompt", "abc"], ["--prompts", requests, "--batch", "2"]):
            process = subprocess.Popen([GENERATE, "--model", "run", "--context", "100000", "--tokens", "90000", *arguments],
                                       cwd=self.folder, env=self.environment(1), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
            self.addCleanup(process.communicate)
            lines = "--prompts" in arguments
            first = process.stdout.readline() if lines else process.stdout.read(20)  # while 90000 tokens are made
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, INTERRUPTED, err)
            text = (first + out).decode()
            self.assertTrue(text.endswith("\n"))
            self.assertIn(b" tokens" if lines else b" tokens, ", err)
            if lines:
                self.assertEqual([json.loads(line)["finish"] for line in text.splitlines()], ["length", "cancelled"])

    def test_standard_output_that_is_full_or_gone(self):
        self.train(changes=SHORT)
        for arguments in (["--prompt", "a"], ["--prompt", "a", "--json"], ["--help"]):
            command = [GENERATE, *([] if arguments == ["--help"] else ["--model", "run"]), *arguments]
            with open("/dev/full", "wb") as full:
                done = subprocess.run(command, cwd=self.folder, stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, RUNTIME)
            self.assertIn(b"coda_generate: standard output: No space left on device\n", done.stderr)
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run(command, cwd=self.folder, stdout=writing, stderr=subprocess.PIPE, check=False)
            os.close(writing)
            self.assertEqual(done.returncode, RUNTIME)
            self.assertIn(b"coda_generate: standard output: Broken pipe\n", done.stderr)

    def test_weights_that_are_not_finite(self):
        self.train(changes=SHORT)
        self.train(*EXPORT, changes=SHORT)
        path = self.path("exported", "model.safetensors")
        with open(path, "r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            begin = header["lm_head.weight"]["data_offsets"][0] + 8 + length
            file.seek(begin + 4 * 32 * 5)
            file.write(b"\xff\xff\xff\x7f" * 32)  # the row of token 5
        self.refuse_generate("--model", "exported", "--prompts", self.lines({"id": "mine", "prompt": "a"}),
                             code=NON_FINITE, says=["token 5 ", "not finite", "position", "\"mine\""])

    def test_bench(self):
        self.train(changes=SHORT)
        out = self.generate("--model", "run", "--bench", "--batch", "2").out.splitlines()
        self.assertEqual([line.split()[:2] for line in out], [["batch", "context"], ["1", "16"], ["2", "16"]])
        self.assertTrue(all(float(figure) > 0 for line in out[1:] for figure in line.split()[2:]), out)
        out = self.generate("--model", "run", "--bench", "--batch", "2", "--json").out.splitlines()
        records = [json.loads(line) for line in out]
        self.assertEqual([(each["batch"], each["context"], each["steps_per_launch"]) for each in records],
                         [(1, 16, 1), (2, 16, 1)])
        one, two = records
        self.assertEqual(list(one), ["batch", "context", "steps_per_launch", "prefill_ms", "first_token_ms", "ms",
                                     "steps_per_s", "tokens_per_s", "bytes"])  # nobody knows a CPU's bandwidth
        self.assertGreater(one["first_token_ms"], one["prefill_ms"])
        for each in records:
            self.assertAlmostEqual(each["ms"] * each["steps_per_s"], 1000)
            self.assertAlmostEqual(each["tokens_per_s"], each["batch"] * each["steps_per_s"])
        # The second sequence's cache: positions 16 + 2 on average 16 + 2 + 7.5, of keys and values in fp32.
        self.assertAlmostEqual(two["bytes"] - one["bytes"], (16 + 2 + 7.5) * 4 * 2 * 2 * 2 * 8)
        message = self.refuse_generate("--model", "run", "--bench", "--context", "30").err
        self.assertIn("a context of 30 positions is too short; 34 are needed", message)

    def test_the_loss_of_a_text(self):
        self.write("text.txt", PHRASE.encode() * 60)
        self.train(changes=SHORT)
        # --eval has sequences of 64 tokens; the text of one of them, with the token before it, is 65.
        text = (PHRASE * 2)[:65]
        self.write("one.txt", text.encode())
        loss = self.train("--resume", "--eval", changes={**SHORT, "training.micro_batch_size": 1, "data.val": "one.txt",
                                                         "validation.batches": 1}).out.split("validation loss ")[1]
        expected = float(loss.split()[0])
        out = self.text("--score", "--prompt", text, "--context", "66")
        self.assertRegex(out, r"^loss \d\.\d{8} over 64 tokens$")
        self.assertAlmostEqual(float(out.split()[1]), expected, delta=1e-5)
        name = self.lines({"id": "whole", "prompt": text}, {"id": 2, "tokens": [1, 2, 3]})
        lines = self.generate("--model", "run", "--score", "--prompts", name, "--context", "66", "--logits",
                              "l.f32").out.splitlines()
        made = [json.loads(line) for line in lines]
        self.assertEqual([(each["id"], each["tokens"]) for each in made], [("whole", 64), (2, 2)])
        self.assertAlmostEqual(made[0]["loss"], expected, delta=1e-5)
        logits = struct.unpack(f"<{66 * 256}f", self.read("l.f32"))
        rows = [logits[i:i + 256] for i in range(0, len(logits), 256)]
        again = [math.log(sum(map(math.exp, row))) - row[ord(c)] for row, c in zip(rows, text[1:])]
        self.assertAlmostEqual(sum(again) / 64, made[0]["loss"], delta=1e-5)
        self.refuse_generate("--model", "run", "--score", "--prompt", "ab", "--logits", "l.f32", says="l.f32")

    def test_the_choice_of_a_decoder(self):
        self.train(changes=SHORT)
        arguments = ["--model", "run", "--prompt", "ab", "--tokens", "5", "--device", "cpu"]
        plain = self.generate(*arguments)
        self.assertNotIn("note", plain.err)
        for decoder in ("auto", "passes"):
            chosen = self.generate(*arguments, "--decoder", decoder, "--watchdog", "0.5")
            self.assertEqual(chosen.out, plain.out)
            self.assertNotIn("note", chosen.err)
        says = ["--decoder fused: the fused decode kernel runs on a Hopper GPU, and this is CPU", "--decoder passes"]
        self.refuse_generate(*arguments, "--decoder", "fused", says=says)
        self.refuse("--samples.interval", "2", "--device", "cpu", "--decoder", "fused", creates=["run"],
                    changes={**SHORT, "output.directory": "run2"}, says=says)

    def test_what_is_refused(self):
        self.train(changes=SHORT)
        os.mkdir(self.path("empty"))
        run = ["--model", "run"]
        for arguments, code, says in (
                ([], USAGE, "--model"),
                (["--modle", "run"], USAGE, ["--modle", "--model"]),
                (["--model", "no"], RUNTIME, "there is no folder no"),
                (["--model", "empty"], RUNTIME, ["config.json", "checkpoints"]),
                ([*run, "--prompt", ""], USAGE, ["--prompt", "bos_token_id"]),
                ([*run], USAGE, ["--prompt", "bos_token_id"]),
                ([*run, "--prompt", b"a\xff"], USAGE, ["--prompt", "byte 1"]),
                ([*run, "--stop", b"\xc3", "--prompt", "a"], USAGE, ["--stop", "byte 0"]),
                ([*run, "--stop", "", "--prompt", "a"], USAGE, "--stop"),
                ([*run, "--decoder", "fast"], USAGE, ["--decoder", "fast", "auto, fused or passes"]),
                ([*run, "--watchdog", "0"], USAGE, "--watchdog"),
                ([*run, "--score"], USAGE, ["--score", "--prompt"]),
                ([*run, "--prompt", "ab", "--logits", "l.f32"], USAGE, ["--logits", "--score"]),
                ([*run, "--score", "--batch", "2", "--prompt", "ab"], USAGE, "--batch"),
                ([*run, "--score", "--bench"], USAGE, ["--bench", "--score"]),
                ([*run, "--prompt", "a" * 64], USAGE, ["64 tokens", "context of 64", "--context"]),
                ([*run, "--prompt", "a", "--prompts", "b"], USAGE, "give one of them"),
                ([*run, "--prompt", "a", "--top-p", "1.5"], USAGE, ["--top-p", "1.5"]),
                ([*run, "--prompt", "a", "--temperature", "nan"], USAGE, "--temperature"),
                ([*run, "--prompt", "a", "--batch", "17"], USAGE, "1 to 16"),
                ([*run, "--prompt", "a", "--batch", "2"], USAGE, "--batch"),
                ([*run, "--prompts", "b", "--batch", "3", "--lookup"], USAGE, ["--lookup", "2 sequences", "--batch"]),
                ([*run, "--bench", "--lookup"], USAGE, ["--bench", "--lookup"]),
                ([*run, "--prompt", "a", "--tokens", "0"], USAGE, "--tokens"),
                ([*run, "--prompt", "a", "b"], USAGE, "unexpected argument"),
                ([*run, "--prompt", "a", "--system", "s"], USAGE, ["--system", "--chat"]),
                ([*run, "--chat"], USAGE, "--chat"),
                ([*run, "--chat", "--prompt", "a"], RUNTIME, ["chat_template.jinja", "tokenizer_config.json"]),
                ([*run, "--prompt-file", "no.txt"], RUNTIME, "no.txt"),
                ([*run, "--prompts", "no.jsonl"], RUNTIME, "no.jsonl"),
                ([*run, "--prompts", "."], RUNTIME, "a folder"),
                ([*run, "--prompt", "a", "--tokenizer", "no.json"], RUNTIME, "no.json"),
                ([*run, "--prompt", "a", "--device", "tpu"], USAGE, "--device")):
            with self.subTest(arguments):
                self.refuse_generate(*arguments, code=code, says=says)
        self.write("bad.txt", b"abc\xc3")
        self.refuse_generate(*run, "--prompt-file", "bad.txt", says=["bad.txt", "byte 3"])
        self.write("empty.jsonl", b"\n \n")
        self.refuse_generate(*run, "--prompts", "empty.jsonl", says="empty.jsonl")
        good = {"prompt": "a"}
        for bad, says in (({"prompt": "a", "topk": 3}, ["p.jsonl:2", "\"topk\"", "top_k"]),
                          ({"prompt": 3}, ["p.jsonl:2: prompt"]),
                          ({"tokens": [256]}, ["p.jsonl:2", "256"]),
                          ({"prompt": "b" * 64}, ["p.jsonl:2", "64 tokens"]),
                          ({"prompt": ""}, ["p.jsonl:2", "bos_token_id"])):
            with self.subTest(bad):
                result = self.refuse_generate(*run, "--prompts", self.lines(good, bad), says=says)
                self.assertEqual(result.out, "", "a file is checked before anything is generated")
        with self.subTest("a run without a checkpoint"):
            os.rename(self.path("run", "checkpoints"), self.path("run", "moved"))
            os.mkdir(self.path("run", "checkpoints"))
            self.refuse_generate(*run, "--prompt", "a", says="no complete checkpoint")


if __name__ == "__main__":
    unittest.main()
