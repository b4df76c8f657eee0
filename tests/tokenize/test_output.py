"""What coda_tokenize leaves behind: shards, validation, text again, and nothing where it failed."""

import json
import os
import pty
import resource
import select
import signal
import subprocess
import time
import unittest

from tokenizing import BYTES, DONE, END, INTERRUPTED, PROGRAM, RUNTIME, ProgramTestCase, ids


class OutputTest(ProgramTestCase):
    def test_shards(self):
        self.write("a.txt", "0123456789")
        self.tokenize("a.txt", "--shard-tokens", 4)
        self.assertEqual([self.tokens(f"o_{i:06}.bin") for i in range(3)],
                         [[END, *ids("012")], ids("3456"), ids("789")])
        self.refused("a.txt", says=["o_000000.bin", "exists", "--overwrite"])
        self.tokenize("a.txt", "--shard-tokens", 8, "--overwrite")  # one shard fewer than before
        self.assertEqual([n for n in self.files() if n.endswith(".bin")], ["o_000000.bin", "o_000001.bin"])
        self.tokenize("a.txt", "--overwrite")
        self.assertEqual([n for n in self.files() if n.endswith(".bin")], ["o.bin"])

    def test_stems_that_begin_alike_do_not_meet(self):
        self.write("a.txt", "a")
        self.write("o_other.bin", "")
        self.write("o_12.bin", "")
        self.tokenize("a.txt")
        self.assertEqual([n for n in self.files() if n.endswith(".bin")], ["o.bin", "o_12.bin", "o_other.bin"])

    def test_wide_tokens(self):
        tokenizer = json.loads(json.dumps(BYTES))
        for last, wide in ((65535, False), (65536, True)):
            tokenizer["added_tokens"][0]["id"] = tokenizer["model"]["vocab"]["<|endoftext|>"] = last
            self.write("wide.json", json.dumps(tokenizer))
            self.write("a.txt", "a")
            self.run_program("--tokenizer", "wide.json", "--out", "o", "--overwrite", "a.txt")
            self.assertEqual(self.tokens(), [last, *ids("a")])
            self.assertEqual(os.path.getsize(self.path("o.bin")), 1024 + 2 * (4 if wide else 2))

    def test_validation_documents(self):
        self.write("a.jsonl", "".join(json.dumps({"text": chr(48 + i)}) + "\n" for i in range(10)))
        self.tokenize("a.jsonl", "--val-fraction", 0.2, "--bos", "none")
        self.assertEqual(self.tokens("o_train.bin"), ids("01235678"))
        self.assertEqual(self.tokens("o_val.bin"), ids("49"))

    def test_validation_at_a_blank_line(self):
        text = "aé\n\nbb\n\ncccc\n\ndd"
        self.write("a.txt", text)
        for fraction, end in ((0.1, "cccc\n\n"), (0.5, "bb\n\n"), (0.8, "aé\n")):
            self.tokenize("a.txt", "--val-fraction", fraction, "--split-at", "blank-line", "--overwrite")
            at = text.index(end) + len(end)
            self.assertEqual(self.tokens("o_train.bin"), [END, *ids(text[:at])], fraction)
            self.assertEqual(self.tokens("o_val.bin"), [END, *ids(text[at:])], fraction)
        self.refused("a.txt", "--val-fraction", 0.2, "--overwrite", says=["no document is left for validation"])
        self.refused("-", "--val-fraction", 0.2, "--split-at", "blank-line", "--overwrite", says=["standard input"])

    def test_decode(self):
        text = "Grüße <|endoftext|>\0\n"
        self.write("a.txt", text)
        self.tokenize("a.txt", "--shard-tokens", 7)
        shards = [name for name in self.files() if name.endswith(".bin")]
        decode = ["--tokenizer", "t.json", "--decode", *shards]
        self.assertEqual(self.run_program(*decode).stdout.decode(), "<|endoftext|>" + text)
        self.assertEqual(self.run_program(*decode, "--skip-special").stdout.decode(), "Grüße \0\n")
        self.run_program(*decode, "--out", "back.txt")
        with open(self.path("back.txt"), encoding="utf-8", newline="") as file:
            self.assertEqual(file.read(), "<|endoftext|>" + text)
        self.run_program(*decode, "--out", "back.txt", expect=RUNTIME)
        self.write("bad.bin", b"x" * 2000)
        self.assertIn("bad.bin", self.run_program("--tokenizer", "t.json", "--decode", "bad.bin",
                                                  expect=RUNTIME).stderr)

    def test_full_disk(self):
        self.write("a.txt", "word " * 400000)

        def limit():  # and its signal, which would end the process
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        self.tokenize("a.txt", "--shard-tokens", 1000)
        with open(self.path("o_000000.bin"), "rb") as file:
            before = file.read()
        self.refused("a.txt", "--overwrite", says=["File too large", "o_0.bin.new"], preexec_fn=limit)
        with open(self.path("o_000000.bin"), "rb") as file:
            self.assertEqual(file.read(), before)
        os.mkdir(self.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.path("disk")],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.path("disk")], check=True)
        self.refused("a.txt", "--out", "disk/o", says=["No space left on device"])
        self.assertEqual(os.listdir(self.path("disk")), [])

    def test_inputs_are_not_replaced(self):
        self.write("o.bin", "text in a file of this name")
        self.refused("o.bin", "--format", "txt", "--overwrite", says=["o.bin: the run reads this file"])
        self.write("a.txt", "text")
        self.tokenize("a.txt", "--out", "s")
        with open(self.path("s.bin"), "rb") as file:
            shard = file.read()
        decode = ["--tokenizer", "t.json", "--decode", "s.bin", "--overwrite", "--out"]
        for out, says in (("s.bin", "the run reads this file"), ("t.json", "the run reads this file"),
                          ("/dev/null", "is a device")):
            self.assertIn(says, self.run_program(*decode, out, expect=RUNTIME).stderr)
        with open(self.path("s.bin"), "rb") as file:
            self.assertEqual(file.read(), shard)
        self.run_program(*decode[:-2])  # the tokenizer is whole too

    def test_lost_output(self):
        self.write("a.txt", "text")
        self.tokenize("a.txt")
        for arguments in (["--help"], ["--version"], ["--tokenizer", "t.json", "--decode", "o.bin"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, stdout=full, stderr=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(done.returncode, RUNTIME, arguments)
            self.assertRegex(done.stderr, rb"\Acoda_tokenize: [^\n]*standard output: No space left on device\n\Z")

    def test_names_are_escaped(self):
        self.write("\x1b[31m.txt", "text")
        done = self.tokenize("\x1b[31m.txt", "--out", "\x1b[32m")
        self.assertIn("\\x1b[32m.bin: 5 tokens", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        self.assertNotIn("\x1b", self.refused("\x1b[33m.txt", says=["\\x1b[33m.txt"]).stderr)

    def test_a_pipe_is_not_read_twice(self):
        os.mkfifo(self.path("pipe"))
        self.refused("pipe", "--format", "txt", "--val-fraction", 0.2, "--split-at", "blank-line",
                     says=["pipe: is a FIFO, which cannot be read twice"])

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGHUP):
            with self.subTest(number):
                self.interrupt(number)

    def interrupt(self, number):
        before = self.files()
        process = subprocess.Popen([PROGRAM, "--tokenizer", "t.json", "--out", "o", "-"], cwd=self.folder,
                                   stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        with process.stdin as pipe:
            for _ in range(40):
                pipe.write(b"words and words\n" * 65536)
            deadline = time.monotonic() + 60
            while "o_0.bin.new" not in self.files() and time.monotonic() < deadline:
                pipe.write(b"words and words\n" * 65536)
            process.send_signal(number)
        with process.stderr as pipe:
            error = pipe.read()
        self.assertEqual(process.wait(60), INTERRUPTED, error)
        self.assertIn(b"nothing was written", error)
        self.assertEqual(self.files(), before)

    def test_progress_only_on_a_terminal(self):
        self.write("a.txt", "word " * 8000000)
        self.assertNotIn("\r", self.tokenize("a.txt").stderr)
        leader, follower = pty.openpty()
        process = subprocess.Popen([PROGRAM, "--tokenizer", "t.json", "--out", "p", "a.txt", "--threads", "1"],
                                   cwd=self.folder, stderr=follower)
        os.close(follower)
        seen = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                block = os.read(leader, 4096)
            except OSError:
                break
            if not block:
                break
            seen += block
        os.close(leader)
        self.assertEqual(process.wait(60), DONE)
        self.assertIn(b"% of 38.15 MiB | eta ", seen)


if __name__ == "__main__":
    unittest.main()
