"""cmake --install into a folder of its own, and the installed programs as a user starts them from another one."""

import os
import shutil
import subprocess
import unittest

from program import DONE, PROGRAM, ROOT, RUNTIME, TIMEOUT_S, USAGE, ProgramTestCase, Result

BUILD = os.path.dirname(os.path.dirname(PROGRAM))
CONFIGS = sorted(os.listdir(os.path.join(ROOT, "configs")))


@unittest.skipUnless(shutil.which("cmake") and os.path.exists(f"{BUILD}/CMakeCache.txt"), "no cmake or no build folder")
class InstallTest(ProgramTestCase):
    def setUp(self):
        super().setUp()
        self.prefix = self.path("installed prefix")
        self.share = os.path.join(self.prefix, "share", "coda_train")
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", self.prefix], capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        os.mkdir(self.path("elsewhere"))

    def run_installed(self, program, *arguments, expect=DONE):
        done = subprocess.run([os.path.join(self.prefix, program), *arguments], cwd=self.path("elsewhere"),
                              env=self.environment(1), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        result = Result(done.returncode, done.stdout, done.stderr)
        self.assertEqual(result.code, expect, result)
        return result

    def test_what_is_installed(self):
        def names(*folder):
            return sorted(os.listdir(os.path.join(self.prefix, *folder)))

        programs = [name for name in ("coda_generate", "coda_tokenize", "coda_train") if os.path.exists(f"{BUILD}/bin/{name}")]
        self.assertEqual(names(), ["bin", "include", "lib", "share"])
        self.assertEqual(names("include"), ["coda.h"])
        self.assertEqual(names("lib"), ["libcoda.so", "libcoda.so.1"])
        self.assertEqual(names("bin"), programs)
        self.assertEqual(names("share"), ["coda_train"])
        self.assertEqual(names("share", "coda_train", "configs"), CONFIGS)
        scripts = [name for name in os.listdir(os.path.join(ROOT, "data")) if name.endswith(".py")]
        self.assertEqual(names("share", "coda_train", "data"), sorted(scripts))
        for name in ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "docs"):
            present = os.path.exists(os.path.join(ROOT, name))
            self.assertEqual(os.path.exists(os.path.join(self.share, name)), present, name)

    def test_programs_from_another_folder(self):
        self.assertIn("--data.tokenizer", self.run_installed("bin/coda_train", "--help").out)
        if os.path.exists(f"{BUILD}/bin/coda_tokenize"):
            self.assertIn("--tokenizer", self.run_installed("bin/coda_tokenize", "--help").out)
        text = os.path.join("..", "text.txt")
        plan = self.run_installed("bin/coda_train", "--config", "demo.json", "--dry-run", "--data.train", text,
                                  "--training.seq_len", "32", "--device", "cpu")
        self.assertIn("sequences of 32 tokens", plan.out)
        self.assertEqual(os.listdir(self.path("elsewhere")), [])

    def test_a_file_of_this_folder_wins(self):
        with open(self.path("elsewhere", "llama1b.json"), "w", encoding="utf-8") as file:
            file.write('{"model": {"hidden": 1}}')
        result = self.run_installed("bin/coda_train", "--config", "llama1b.json", expect=USAGE)
        self.assert_message(result, "llama1b.json: unknown key model.hidden")

    def test_unknown_names_are_answered_with_those_shipped(self):
        result = self.run_installed("bin/coda_train", "--config", "lama.json", "--dry-run", expect=USAGE)
        self.assert_message(result, [self.path("elsewhere"), f"{self.share}/configs", ", ".join(CONFIGS)])
        result = self.run_installed("bin/coda_train", "--config", "configs/demo.json", expect=USAGE)
        self.assert_message(result, "configs/demo.json: cannot be opened")

    def test_missing_data_is_answered_with_the_installed_script(self):
        for config, script, options, shorter in (
                ("llama1b.json", "fineweb_edu.py", " --tokenizer llama3 --files 14", " (fewer --files for a short run)"),
                ("demo.json", "tinyshakespeare.py", "", "")):
            result = self.run_installed("bin/coda_train", "--config", config, "--device", "cpu", "--dry-run",
                                        expect=RUNTIME)
            command = f"'{self.share}/data/{script}'{options}"
            self.assertTrue(result.err.endswith(f"; to make what is missing{shorter}: {command}\n"), result)
            help_text = self.run_installed(f"share/coda_train/data/{script}", "--help").out
            self.assertIn("--tokenizer FILE", help_text)
            self.assertIn(f"data/{script[:-3]} in this folder", help_text)


if __name__ == "__main__":
    unittest.main()
