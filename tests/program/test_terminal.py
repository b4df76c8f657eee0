"""Names and generated text on a terminal: what a file or a model says is shown, not obeyed."""

import json
import os
import re
import subprocess
import tty
import unittest

from program import DONE, PROGRAM, RUNTIME, TIMEOUT_S, ProgramTestCase

GENERATE = os.path.join(os.path.dirname(PROGRAM), "coda_generate")
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
    def on_terminal(self, *arguments, expect=DONE, program=PROGRAM, stderr=None):
        """The bytes that reach a terminal, of both streams unless `stderr` says where the other one goes."""
        main, terminal = os.openpty()
        tty.setraw(terminal)  # else it makes "\r\n" of a line's end
        process = subprocess.Popen([program, *arguments], cwd=self.folder, env=self.environment(1), stdout=terminal,
                                   stderr=stderr or terminal, stdin=subprocess.DEVNULL)
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

    def test_generated_text(self):
        # Hardly trained: every byte is about as likely as any other.
        self.train(changes={"training.steps": 1, "optimizer.learning_rate": 1e-6})
        generate = ["--model", "run", "--prompt", "a", "--tokens", "3000", "--context", "3001"]
        raw = subprocess.run([GENERATE, *generate], cwd=self.folder, env=self.environment(1), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=True).stdout
        seen = self.on_terminal(*generate, program=GENERATE, stderr=subprocess.DEVNULL)
        self.assertEqual(set(range(128)) - set(raw), set(), "not every control character is in the text")
        self.assertEqual(seen, shown(raw, "\n\t"))
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
