"""What a machine lacks for --device cuda: one clear line each. A library in the driver's place stands for the machine."""

import os
import shutil
import subprocess
import unittest

from program import PROGRAM, ROOT, RUNTIME, ProgramTestCase

HAS_KERNELS = os.access(os.path.join(os.path.dirname(PROGRAM), "coda_bench"), os.X_OK)
COMPILER = shutil.which("cc") or shutil.which("g++")

# Of libcuda.so.1, what CUDA's run-time library asks first: VERSION (1000 major + 10 minor) and what cuInit answers, 100
# being CUDA_ERROR_NO_DEVICE.
DRIVER = """
#include <string.h>
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { (void)flags; return 100; }
int cuGetExportTable(const void** table, const void* id) { (void)table; (void)id; return 1; }
static int nothing(void) { return 0; }
int cuGetProcAddress_v2(const char* name, void** address, int version, unsigned long long flags, int* found) {
    (void)version; (void)flags;
    if (found) *found = 0;
    *address = strcmp(name, "cuDriverGetVersion") == 0 ? (void*)cuDriverGetVersion
             : strcmp(name, "cuInit") == 0             ? (void*)cuInit
             : strcmp(name, "cuGetExportTable") == 0   ? (void*)cuGetExportTable
             : strcmp(name, "cuGetProcAddress") == 0   ? (void*)cuGetProcAddress_v2
                                                       : (void*)nothing;
    return 0;
}
"""


@unittest.skipUnless(HAS_KERNELS, "this build has no kernels for a GPU")
class GpuRequirementsTest(ProgramTestCase):
    def message(self, environment):
        done = subprocess.run([PROGRAM, "--config", os.path.join(ROOT, "configs", "demo.json"), "--data.train", "text.txt",
                               "--device", "cuda"],
                              cwd=self.folder, env={**self.environment(1), **environment}, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, RUNTIME, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Acoda_train: --device cuda: [^\n]+; --device cpu trains on the CPU\n\Z")
        self.assertEqual(os.listdir(self.folder).count("runs"), 0)
        return done.stderr

    def with_driver(self, version):
        folder = self.path(f"driver{version}")
        os.mkdir(folder)
        source = self.write("driver.c", DRIVER.encode())
        subprocess.run([COMPILER, "-x", "c", f"-DVERSION={version}", "-shared", "-fPIC", "-w", source, "-o",
                        os.path.join(folder, "libcuda.so.1")], cwd=self.folder, check=True)
        return self.message({"LD_LIBRARY_PATH": folder})

    @unittest.skipUnless(COMPILER, "there is no C compiler")
    def test_old_driver(self):
        said = self.with_driver(11040)
        self.assertIn("the NVIDIA driver supports CUDA 11.4, older than this build's CUDA ", said)
        self.assertIn("update the driver", said)

    @unittest.skipUnless(COMPILER, "there is no C compiler")
    def test_driver_without_a_gpu(self):
        self.assertIn("there is an NVIDIA driver but no GPU that it may use", self.with_driver(99000))

    def test_hidden_gpu_or_no_driver(self):
        self.assertRegex(self.message({"CUDA_VISIBLE_DEVICES": ""}), "no NVIDIA driver|no GPU that it may use|hides the NVIDIA GPU")


if __name__ == "__main__":
    unittest.main()
