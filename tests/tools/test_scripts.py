"""The shell scripts: usage, shellcheck, and tools/format on a small project of its own."""

import os
import shutil
import subprocess
import unittest

from logs import TOOLS, LogTestCase

ROOT = os.path.normpath(os.path.join(TOOLS, ".."))
SCRIPTS = ["tools/check", "tools/quickstart", "tools/install_dependencies", "tools/format"]


def run(*command, cwd=ROOT):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def has_clang_format():
    return run("bash", "-c", "source tools/machine.sh && find_clang_format").returncode == 0


class UsageTest(unittest.TestCase):
    def test_help(self):
        for script in SCRIPTS:
            done = run(f"{ROOT}/{script}", "--help", cwd="/")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"usage: {script}", done.stdout)

    def test_unknown_argument(self):
        for script in SCRIPTS:
            done = run(f"{ROOT}/{script}", "--colour")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("unknown argument '--colour'", done.stderr)

    def test_bad_values(self):
        for command, word in (
            (("check", "--preset", "debug"), "--preset: 'debug'"),
            (("check", "--jobs", "0"), "--jobs: '0'"),
            (("check", "--jobs"), "--jobs needs a value"),
            (("quickstart", "--text", "/no/such/file"), "/no/such/file"),
        ):
            done = run(f"{ROOT}/tools/{command[0]}", *command[1:])
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(word, done.stderr)

    @unittest.skipUnless(shutil.which("shellcheck"), "no shellcheck here")
    def test_shellcheck(self):
        done = run("shellcheck", "-x", "tools/machine.sh", ".ci/run", *SCRIPTS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_versions(self):
        for have, expected in (("12.4", 0), ("13.0", 0), ("12.10", 0), ("12.4.1", 0), ("12.3", 1), ("9.9", 1)):
            done = run("bash", "-c", f"source tools/machine.sh && at_least {have} 12.4")
            self.assertEqual(done.returncode, expected, have)


@unittest.skipUnless(has_clang_format(), "the pinned clang-format is not here")
class FormatTest(LogTestCase):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("tools"))
        for file in ("tools/format", "tools/machine.sh", ".clang-format"):
            shutil.copy(os.path.join(ROOT, file), self.path(file))
        for file, text in (
            ("kernels/good.h", "int a;\n"),
            ("src/bad.cpp", "int  b ;\n"),
            ("src/new bad.cu", "int  c ;\n"),
            ("src/built.cpp", "int  d ;\n"),
            ("tests/notes.txt", "int  e ;\n"),
        ):
            os.makedirs(os.path.dirname(self.path(file)), exist_ok=True)
            with open(self.path(file), "w", encoding="utf-8") as out:
                out.write(text)

    def text(self, file):
        with open(self.path(file), encoding="utf-8") as text:
            return text.read()

    def make_repository(self):
        with open(self.path(".gitignore"), "w", encoding="utf-8") as file:
            file.write("built.cpp\n")
        run("git", "init", "--quiet", cwd=self.folder)
        run("git", "add", "kernels", "src/bad.cpp", cwd=self.folder)

    def test_check_names_the_files_and_changes_nothing(self):
        self.make_repository()
        done = run(self.path("tools/format"), "--check")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines(), ["src/bad.cpp", "src/new bad.cu"])
        self.assertIn("2 of 3 files", done.stderr)
        self.assertEqual(self.text("src/bad.cpp"), "int  b ;\n")

    def test_fix_leaves_ignored_and_other_files(self):
        self.make_repository()
        self.assertEqual(run(self.path("tools/format")).returncode, 0)
        self.assertEqual(self.text("src/bad.cpp"), "int b;\n")
        self.assertEqual(self.text("src/new bad.cu"), "int c;\n")
        self.assertEqual(self.text("src/built.cpp"), "int  d ;\n")
        self.assertEqual(self.text("tests/notes.txt"), "int  e ;\n")
        self.assertEqual(run(self.path("tools/format"), "--check").stdout, "3 files, all formatted\n")

    def test_deleted_file(self):
        self.make_repository()
        os.remove(self.path("src/bad.cpp"))
        self.assertEqual(run(self.path("tools/format"), "--check").stdout.splitlines(), ["src/new bad.cu"])

    def test_without_git(self):
        done = run(self.path("tools/format"), "--check")
        self.assertEqual(done.stdout.splitlines(), ["src/bad.cpp", "src/built.cpp", "src/new bad.cu"])


if __name__ == "__main__":
    unittest.main()
