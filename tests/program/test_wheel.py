"""pip install . into an environment that has nothing else, and what the package does there."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from program import DONE, PROGRAM, ROOT, TIMEOUT_S, USAGE, ProgramTestCase, Result

CACHE = os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), "CMakeCache.txt")
BUILD_S = 1500  # without ccache; seconds with it
CONFIG = ["--training.steps", "3", "--training.grad_accumulation_steps", "2", "--data.train", "text.txt", "--device",
          "cpu", "--training.seq_len", "32", "--validation.interval", "0"]


def cached(name):
    """A value that this build was configured with."""
    try:
        with open(CACHE, encoding="utf-8") as file:
            found = re.search(rf"^{name}:\w+=(.*)$", file.read(), re.M)
    except OSError:
        return ""
    return found[1] if found else ""


@unittest.skipIf(cached("CODA_SANITIZE") != "OFF", "not of the sanitizers' build, or no build folder")
class WheelTest(ProgramTestCase):
    def run_here(self, *command, timeout=TIMEOUT_S, **environment):
        done = subprocess.run(command, cwd=self.folder, env={**self.environment(1), **environment}, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, timeout=timeout, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    def test_in_an_empty_environment(self):
        python = self.path("venv", "bin", "python")
        self.assertEqual(self.run_here(sys.executable, "-m", "venv", "venv").code, DONE)
        # The compiler and flags of this build, and a folder next to it, so that ccache has what it made.
        builds = os.path.join(ROOT, "build")
        os.makedirs(builds, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="test_wheel_", dir=builds)
        self.addCleanup(folder.cleanup)
        built = self.run_here(python, "-m", "pip", "wheel", ROOT, "--no-deps", "--wheel-dir", "wheels", "--config-settings",
                              "build-dir=" + folder.name, "--config-settings", "cmake.define.CODA_HOPPER=OFF",
                              "--config-settings", f"cmake.define.CODA_WERROR={cached('CODA_WERROR')}", timeout=BUILD_S,
                              CXX=cached("CMAKE_CXX_COMPILER"))
        if "No matching distribution found for scikit-build-core" in built.err:
            self.skipTest("the package index cannot be reached")
        self.assertEqual(built.code, DONE, built)
        (wheel,) = os.listdir(self.path("wheels"))
        self.assertRegex(wheel, r"^coda_torch-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        installed = self.run_here(python, "-m", "pip", "install", "--no-index", self.path("wheels", wheel))
        self.assertEqual(installed.code, DONE, installed)

        example = os.path.join(ROOT, "examples", "shared_memory_team.py")
        trained = self.run_here(python, example, "--ranks", "2", "--config", "demo.json", *CONFIG)
        self.assertEqual(trained.code, DONE, trained)
        self.assertEqual(re.findall(r"^step +(\d)/3", trained.out, re.M), ["1", "2", "3"], trained)
        refused = self.run_here(python, example, "--ranks", "2", "--config", "demo.json", "--training.stepz", "1")
        self.assertEqual(refused.code, USAGE, refused)
        self.assertEqual(refused.err.count("--training.steps"), 1, "both ranks found it, and one says so")

        without_torch = self.run_here(python, "-m", "coda_torch", "--ranks", "2", "--config", "demo.json")
        self.assertEqual(without_torch.code, 1, without_torch)
        self.assertIn("need PyTorch", without_torch.err)


if __name__ == "__main__":
    unittest.main()
