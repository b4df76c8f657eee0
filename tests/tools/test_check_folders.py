"""tools/check_folders: which trees it refuses, and in what words."""

import importlib.machinery
import importlib.util
import os
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load():
    """The script as a module: its name has no .py."""
    loader = importlib.machinery.SourceFileLoader("check_folders", os.path.join(ROOT, "tools", "check_folders"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_folders", loader))
    loader.exec_module(module)
    return module


check_folders = load()


def source(*headers, lines=0):
    return "".join(f'#include "{header}"\n' for header in headers) + "\n" * lines


class CheckFolders(unittest.TestCase):
    def test_a_clean_tree(self):
        self.assertEqual(check_folders.problems({
            "kernels/core/error.h": source(),
            "kernels/cpu/gemm.h": source("kernels/core/error.h", "kernels/cpu/tiles.h"),
            "src/io/files.cpp": source("src/io/files.h", "kernels/core/error.h", lines=398),
            "tools/bench/main.cpp": source("src/io/files.h"),
        }), [])

    def test_two_folders_that_include_each_other(self):
        found = check_folders.problems({
            "src/core/console.cpp": source("src/io/files.h"),
            "src/io/files.cpp": source("src/core/console.h"),
            "src/io/tokens.cpp": source("src/core/console.h"),
        })
        self.assertEqual(found, ['src/core and src/io include each other:\n'
                                 '  src/core/console.cpp includes "src/io/files.h"\n'
                                 '  src/io/files.cpp includes "src/core/console.h"'])

    def test_one_direction_is_enough(self):
        self.assertEqual(check_folders.problems({
            "src/core/console.cpp": source("src/io/files.h"),
            "src/io/files.cpp": source("kernels/core/error.h"),
        }), [])

    def test_a_long_file(self):
        self.assertEqual(check_folders.problems({"tests/io/files_test.cpp": source(lines=400)}), [])
        self.assertEqual(check_folders.problems({"tests/io/files_test.cpp": source(lines=401)}),
                         ["tests/io/files_test.cpp: 401 lines, at most 400: one idea a file"])

    def test_a_header_of_the_tests(self):
        self.assertEqual(check_folders.problems({
            "src/io/files.cpp": source("tests/io/faults.h"),
            "kernels/ops/zero/cpu.cpp": source("kernels/ops/zero/test_cases.h"),
        }), ['src/io/files.cpp: includes "tests/io/faults.h" of the tests',
             'kernels/ops/zero/cpu.cpp: includes "kernels/ops/zero/test_cases.h" of the tests'])

    def test_tests_may_include_anything(self):
        self.assertEqual(check_folders.problems({
            "kernels/ops/zero/test.cpp": source("tests/kernels/fixture.h", "kernels/cpu/run.h"),
            "kernels/cpu/run.cpp": source("kernels/ops/zero/op.h"),
            "tests/io/files_test.cpp": source("tests/io/faults.h"),
        }), [])


if __name__ == "__main__":
    unittest.main()
