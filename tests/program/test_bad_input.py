"""Bad command lines, configs, data and output folders: the message, the exit code, and nothing half-written."""

import os
import socket
import struct
import subprocess
import unittest

from program import PROGRAM, RUNTIME, TIMEOUT_S, USAGE, ProgramTestCase, shard


class CommandLineTest(ProgramTestCase):
    def test_flags(self):
        for arguments, says in (
            (["--data.trian", "x"], ["unknown flag --data.trian", "--data.train"]),
            (["--steps", "3"], ["unknown flag --steps", "--training.steps"]),
            (["--resum"], ["unknown flag --resum", "--resume"]),
            (["extra"], ["unexpected argument extra"]),
            (["--training.steps", "many"], ["--training.steps", "an integer", '"many"']),
            (["--training.steps", "1.5"], ["--training.steps", "an integer", "1.5"]),
            (["--training.steps", "-3"], ["--training.steps", "-3"]),
            (["--training.steps"], ["--training.steps", "value"]),
            (["--export", "--resume"], ["--export", "found the flag --resume"]),
            (["--data.shuffle", "maybe"], ["--data.shuffle", "true or false"]),
            (["--lr_schedule.type", "step"], ["--lr_schedule.type", "cosine", "step"]),
            (["--device", "tpu"], ["--device", "tpu"]),
            (["--oracle", "2"], ["--oracle"]),
            (["--eval", "--dump-batches", "b.npy"], ["--dump-batches"]),
            (["--export", "out", "--timing", "t.json"], ["--timing"]),
        ):
            with self.subTest(arguments):
                self.refuse(*arguments, code=USAGE, says=says)

    def test_config_flag(self):
        for arguments, says in (([], "--config FILE is required"), (["--confg", "c"], "--config"),
                                (["--config"], "--config"), (["--config", "no.json"], "no.json"),
                                (["--config", "."], ".: is a folder"),
                                (["--config", "/dev/zero"], "/dev/zero: is a device"),
                                (["--config", "/dev/stdin"], "/dev/stdin: is a device")):
            with self.subTest(arguments):
                self.assert_message(self.run_program(*arguments, expect=USAGE), says)

    def test_times_of_a_run_that_the_oracle_ends(self):
        self.refuse("--timing", "t.json", "--oracle", "2", code=USAGE, says=["--timing and --oracle", "one of them"])

    def test_no_gpu(self):
        self.refuse("--device", "cuda", says=["--device cuda", "--device cpu"])


class ConfigTest(ProgramTestCase):
    def test_keys(self):
        for changes, says in (
            ({"model.hidden_size": ...}, ["config.json", "missing key model.hidden_size"]),
            ({"training.seq_len": ..., "training.steps": ...}, ["missing keys training.seq_len, training.steps"]),
            ({"model.num_atention_heads": 4}, ["unknown key model.num_atention_heads", "model.num_attention_heads"]),
            ({"optimizer.lr": 1}, ["unknown key optimizer.lr"]),
            ({"traning": {"steps": 3}}, ["unknown section traning", "training"]),
            ({"model.hidden_size": "16"}, ["config.json: model.hidden_size", "an integer", 'string "16"']),
            ({"model.hidden_size": 16.5}, ["model.hidden_size", "16.5"]),
            ({"model.hidden_size": [16]}, ["model.hidden_size", "an array"]),
            ({"data.shuffle": 1}, ["data.shuffle", "true or false"]),
            ({"data.train": 7}, ["data.train", "a path, a glob or a list"]),
            ({"data.train": []}, ["data.train", "empty"]),
            ({"data.train": [""]}, ["data.train[0]"]),
            ({"data.train": "text.txt\0.bin"}, ["data.train[0]", "without NUL", "text.txt\\u0000.bin"]),
            ({"data.val": ["text.txt", "text.txt\0"]}, ["data.val[1]", "without NUL"]),
            ({"data.tokenizer": "t.json\0"}, ["data.tokenizer", "without NUL"]),
            ({"evaluation.files": ["a.bin\0"]}, ["evaluation.files[0]", "without NUL"]),
            ({"output.directory": "run\0/../other"}, ["output.directory", "without NUL", "run\\u0000/../other"]),
            ({"optimizer.beta1": 1}, ["optimizer.beta1", "[0, 1)"]),
            ({"optimizer.learning_rate": -1}, ["optimizer.learning_rate", "> 0"]),
            ({"training.micro_batch_size": 0}, ["training.micro_batch_size"]),
            ({"checkpoint.keep": 0}, ["checkpoint.keep"]),
            ({"model.num_attention_heads": 3}, ["model.hidden_size 16", "model.num_attention_heads 3"]),
            ({"model.num_key_value_heads": 3}, ["model.num_attention_heads 4", "model.num_key_value_heads 3"]),
            ({"model.head_dim": 5}, ["model.head_dim 5", "odd"]),
            ({"model.num_hidden_layers": 10 ** 9, "model.hidden_size": 10 ** 6}, ["model"]),
            ({"model.max_position_embeddings": 4}, ["training.seq_len 8", "model.max_position_embeddings 4"]),
            ({"model.rope_scaling": {"rope_type": "dynamic"}}, ["model.rope_scaling.rope_type", "dynamic"]),
            ({"model.rope_scaling": {"rope_type": "llama3", "factor": 8}}, ["model.rope_scaling."]),
            ({"data.document_mask": True}, ["data.document_mask", "model.bos_token_id"]),
            ({"model.bos_token_id": 256}, ["model.bos_token_id 256", "model.vocab_size 256"]),
            ({"training.lm_head_chunks": 33}, ["training.lm_head_chunks 33"]),
        ):
            with self.subTest(changes):
                self.refuse(changes=changes, code=USAGE, says=says)

    def test_files_that_are_no_config(self):
        for contents, says in (
            (b'{"model": {"hidden_size": 16,}}', "config.json:1:"),
            (b'{\n"model": {\n"hidden_size" 16}}', "config.json:3:"),
            (b"", "config.json"),
            (b"[]", ["config.json", "an array"]),
            (b"null", "config.json"),
            (b'{"device": "cpu", "device": "cpu"}', ["config.json", "device", "twice"]),
            (b'{"output": {"directory": "\xff"}}', "config.json"),
            (b"[" * 100000, ["config.json", "deep"]),
            (b'{"model": {"hidden_size": 1e999}}', "config.json"),
            (bytes(range(256)), "config.json"),
            (b"\0" * (20 << 20), ["config.json", "16 MiB"]),
        ):
            with self.subTest(contents[:40]):
                self.write("config.json", contents)
                self.assert_message(self.run_program("--config", "config.json", expect=USAGE), says)


class DataTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.tokens = [i % 250 for i in range(1000)]

    def refuse_shard(self, contents, says, name="tokens.bin", **changes):
        self.write(name, contents)
        changes = {"data.train": name, **changes}
        self.refuse(changes=changes, says=[name, *says])
        # The same words without allocating anything.
        self.refuse("--dry-run", changes=changes, says=[name, *says])

    def test_shards(self):
        good = shard(self.tokens)
        self.refuse_shard(shard(self.tokens, magic=20240521), ["20240521", "20240520"])
        self.refuse_shard(struct.pack(">3i", 20240520, 1, 1000) + good[12:], ["not a token shard"])
        self.refuse_shard(shard(self.tokens, version=7), ["version 7", "version 1"])
        self.refuse_shard(good[:-2], ["3022 bytes", "1000 tokens", "3024"])
        self.refuse_shard(good + b"\0", ["3025 bytes", "3024"])
        self.refuse_shard(good[:500], ["500 bytes", "header"])
        self.refuse_shard(b"", ["empty"])
        self.refuse_shard(shard(self.tokens, count=-1), ["-1 tokens"])
        self.refuse_shard(shard(self.tokens, count=2 ** 31 - 1), ["2147483647 tokens"])
        self.refuse_shard(self.read("text.txt"), [".txt"])

    def test_token_beyond_the_vocabulary(self):
        for wide, value in ((False, 256), (False, 65535), (True, 256), (True, 2 ** 31 + 5)):
            with self.subTest(wide=wide, value=value):
                tokens = list(self.tokens)
                tokens[77] = value
                self.refuse_shard(shard(tokens, wide), ["token 77", f"id {value}", "model.vocab_size is 256"])

    def test_late_token_beyond_the_vocabulary(self):
        # The first 2^20 tokens are checked at once and the rest when they are read: here in step 3 of 4.
        quarter = 1 << 19
        self.write("late.bin", shard([1] * (2 * quarter + 100) + [9] + [1] * (2 * quarter)))
        self.write("val.bin", shard([1] * 100))
        model = {"hidden_size": 2, "intermediate_size": 2, "num_hidden_layers": 1, "num_attention_heads": 1,
                 "vocab_size": 8}
        changes = {"model": model, "data.train": "late.bin", "data.val": "val.bin", "data.shuffle": False,
                   "training.seq_len": 8, "training.micro_batch_size": 512, "checkpoint.interval": 1,
                   "training.grad_accumulation_steps": quarter // 512 // 8, "training.steps": 4}
        result = self.train(changes=changes, expect=RUNTIME)
        self.assert_message(result, ["late.bin: token 1048676 has id 9", "model.vocab_size is 8"])
        self.assertEqual(self.checkpoints(), ["step_00000001", "step_00000002"])

    def test_too_few_tokens(self):
        self.write("few.bin", shard(self.tokens[:40]))
        for mode in ([], ["--dry-run"]):
            self.refuse(*mode, says=["few.bin", "4 sequences", "one step takes 5", "training.micro_batch_size"],
                        changes={"data.train": "few.bin", "data.val": "text.txt", "training.micro_batch_size": 5})
            self.refuse(*mode, says=["few.bin", "training.seq_len = 40"],
                        changes={"data.train": "few.bin", "training.seq_len": 40})
            self.refuse(*mode, says=["data.val", "few.bin"], changes={"data.val": "few.bin", "training.seq_len": 40})
        self.write("one.txt", b"x")
        self.refuse(changes={"data.train": "one.txt"}, says=["one.txt", "data.train"])

    def test_missing_files(self):
        self.refuse(changes={"data.train": "no.bin"}, says="no.bin")
        self.refuse(changes={"data.train": ["text.txt", "part_*.bin"]}, says=["part_*.bin", self.folder])
        self.refuse(changes={"data.val": "no.txt"}, says="no.txt")
        os.mkdir(self.path("folder.bin"))
        self.refuse(changes={"data.train": "folder.bin"}, says=["folder.bin", "not a regular file"])
        self.refuse(changes={"data.train": "/dev/zero"}, says=["/dev/zero", "not a regular file"])
        os.symlink("nowhere", self.path("link.bin"))
        self.refuse(changes={"data.train": "link.bin"}, says="link.bin")

    def test_special_files_do_not_hang(self):
        os.mkfifo(self.path("pipe.bin"))
        self.refuse(changes={"data.train": "pipe.bin"}, says=["pipe.bin", "a FIFO, not a regular file"])
        self.refuse(changes={"data.val": "pipe.bin"}, says=["pipe.bin", "a FIFO, not a regular file"])
        self.refuse(changes={"evaluation.files": "pipe.bin"}, says=["pipe.bin", "a FIFO, not a regular file"])
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path("s.txt"))
            self.refuse(changes={"data.train": "s.txt"}, says=["s.txt", "not a regular file"])


class SpecialFileTest(ProgramTestCase):
    """A FIFO that nobody writes to is not waited for."""

    def test_configurations(self):
        os.mkfifo(self.path("pipe.json"))
        self.assert_message(self.run_program("--config", "pipe.json", expect=USAGE), "pipe.json: is a FIFO")
        # What a shell makes of --config <(command): a pipe under a name of /dev/fd.
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        self.assert_message(self.run_program("--config", f"/dev/fd/{reading}", expect=USAGE, pass_fds=[reading]),
                            "is a FIFO, not a JSON file; only a regular file is read")

    def test_a_configuration_on_standard_input(self):
        with open(self.path(self.config()), "rb") as file:
            done = subprocess.run([PROGRAM, "--config", "/dev/stdin", "--dry-run"], cwd=self.folder, stdin=file,
                                  capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_tokenizers(self):
        os.mkfifo(self.path("pipe"))
        self.refuse(changes={"data.tokenizer": "pipe"}, says=["data.tokenizer", "pipe", "a FIFO"])
        self.refuse(changes={"data.tokenizer": "/dev/zero"}, says=["data.tokenizer", "/dev/zero", "a device"])


class OutputTest(ProgramTestCase):
    def test_folders_that_cannot_be_made(self):
        self.write("file", b"kept")
        self.refuse(changes={"output.directory": "file/run"}, says="file")
        self.refuse(changes={"output.directory": "file"}, says="file")
        self.refuse(changes={"output.directory": "/proc/run"}, says="/proc/run")
        self.refuse(changes={"output.directory": "x" * 300}, says="x" * 300)
        self.refuse("--resume", changes={"output.directory": "file/run"}, says="file")
        self.assertEqual(self.read("file"), b"kept")

    def test_found_out_before_the_training(self):
        os.mkdir(self.path("folder"))
        for flag in ("--timing", "--tensor-stats", "--dump-batches"):
            self.refuse(flag, "no/where.json", says=[flag, "no/where.json", self.path("no")])
            self.refuse(flag, "folder", says=[flag, "folder"])

    def test_checkpoints_in_the_way(self):
        os.mkdir(self.path("run"))
        self.write("run/checkpoints", b"a file")
        result = self.train(expect=RUNTIME)
        self.assert_message(result, ["the checkpoint of step 12 was not written", "run/checkpoints"])
        self.assertEqual(len(self.log().steps), 12)


if __name__ == "__main__":
    unittest.main()
