"""Names and samples on a terminal: what a file or a model says is shown, not obeyed."""

import json
import os
import re
import subprocess
import tty
import unittest

from program import DONE, PROGRAM, RUNTIME, TIMEOUT_S, ProgramTestCase

HOSTILE = "\x1b[2J\x9b31mred\r\x07"
SHOWN = r"\x1b[2J\xc2\x9b31mred\x0d\x07"  # the bytes of U+009B are two


def shown(raw, kept):
    """`raw` with every byte escaped that is of a control character not in `kept`, or of no UTF-8 character."""
    out = ""
    for character in raw.decode("utf-8", "surrogateescape"):
        code = ord(character)
        control = (code < 32 or 127 <= code < 160) and character not in kept
        broken = 0xdc80 <= code < 0xdd00
        data = character.encode("utf-8", "surrogateescape")
        out += "".join(f"\\x{byte:02x}" for byte in data) if control or broken else character
    return out.encode()


class TerminalTest(ProgramTestCase):
    def on_terminal(self, *arguments, expect=DONE):
        """The bytes that reach a terminal."""
        main, terminal = os.openpty()
        tty.setraw(terminal)  # else it makes "\r\n" of a line's end
        process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, env=self.environment(1), stdout=terminal,
                                   stderr=terminal, stdin=subprocess.DEVNULL)
        os.close(terminal)
        data = b""
        try:
            while part := os.read(main, 65536):
                data += part
        except OSError:  # EIO: the other side is closed
            pass
        os.close(main)
        self.assertEqual(process.wait(TIMEOUT_S), expect, data)
        return data

    def in_pipe(self, *arguments):
        done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, env=self.environment(1), capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (DONE, b""))
        return done.stdout

    def test_samples(self):
        # Hardly trained: every byte is about as likely as any other.
        self.train(changes={"training.steps": 1, "optimizer.learning_rate": 1e-6})
        prompt = "\ttwo\nlines\r\x1b[31m\u00e9"
        sample = ["--config", "config.json", "--resume", "--sample", "3000", "--prompt", prompt]
        raw, seen = self.in_pipe(*sample), self.on_terminal(*sample)
        first, text = raw.split(b"\n", 1)
        self.assertIn(b"resumed from", first)
        self.assertTrue(text.startswith(prompt.encode()), "a pipe gets the bytes as they are")
        self.assertEqual(set(range(256)) - set(text), set(), "not every byte is in the sample")
        self.assertEqual(seen, first + b"\n" + shown(text, "\n\t"))
        self.assertIsNone(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", seen))

    def test_names_in_errors(self):
        for arguments, says in ((["--data.train", HOSTILE], f"no file matches '{SHOWN}'"),
                                (["--data.train", f"{HOSTILE}.txt"], f"{SHOWN}.txt"),
                                (["--timing", f"{HOSTILE}/t.json"], f"there is no folder {self.folder}/{SHOWN}")):
            with self.subTest(arguments):
                config = self.config()
                seen = self.on_terminal("--config", config, *arguments, expect=RUNTIME).decode()
                self.assertIn(says, seen)
                self.assertNotRegex(seen, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

    def test_names_in_what_is_printed(self):
        self.write(f"{HOSTILE}.txt", self.read("text.txt"))
        run = f"run{HOSTILE}"
        config = self.config({"output.directory": run, "data.train": f"{HOSTILE}.txt", "training.steps": 2})
        self.assertIn(f"output in run{SHOWN}".encode(), self.in_pipe("--config", config))
        os.mkdir(self.path(run, "checkpoints", f"step_{HOSTILE}"))
        seen = self.on_terminal("--config", config, "--resume", "--eval").decode()
        self.assertIn(f"resumed from run{SHOWN}/checkpoints/step_00000002", seen)
        self.assertIn(f"skipped run{SHOWN}/checkpoints/step_{SHOWN}", seen)
        self.assertNotRegex(seen, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

    def test_a_printed_configuration_is_json(self):
        config = self.config({"output.directory": f"r\u00fcn{HOSTILE}"})
        seen = self.on_terminal("--config", config, "--print-config").decode()
        self.assertNotRegex(seen, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertEqual(json.loads(seen)["output"]["directory"], f"r\u00fcn{HOSTILE}")
        config = self.config({"output.directory": "r\u00fcn"})
        self.assertIn('"directory": "r\u00fcn"', self.on_terminal("--config", config, "--print-config").decode())


if __name__ == "__main__":
    unittest.main()
