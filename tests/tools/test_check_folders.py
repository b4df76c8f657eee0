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


ROWS = ["kernels/core", "kernels/ops/*/op.h", "kernels/ops.h", "kernels/cpu", "kernels/hopper/sm90", "kernels/ops/NAME",
        "src/core", "src/io", "src/engine", "src/engine/hopper", "src/train", "src/main.cpp"]


def source(*headers, lines=0):
    return "".join(f"#include {header if header[0] == '<' else chr(34) + header + chr(34)}\n"
                   for header in headers) + "\n" * lines


def problems(files):
    return check_folders.problems(files, ROWS)


class TheOrder(unittest.TestCase):
    def test_a_clean_tree(self):
        self.assertEqual(problems({
            "kernels/core/error.h": source("<string>", "<cuchar>"),
            "kernels/ops/zero/op.h": source("kernels/core/error.h"),
            "kernels/ops.h": source("kernels/ops/zero/op.h"),
            "kernels/cpu/gemm.h": source("kernels/core/error.h", "kernels/cpu/tiles.h", "kernels/ops.h"),
            "kernels/hopper/sm90/check.h": source("<cuda_runtime.h>"),
            "kernels/ops/zero/cpu.cpp": source("kernels/cpu/gemm.h", "kernels/ops/zero/op.h"),
            "kernels/ops/zero/hopper.cu": source("kernels/hopper/sm90/check.h", "kernels/ops/zero/zero.cuh"),
            "src/io/files.cpp": source("src/io/files.h", "kernels/core/error.h", lines=398),
            "src/engine/hopper/device.cpp": source("kernels/hopper/sm90/check.h", "src/engine/device.h"),
            "src/main.cpp": source("src/train/run.h"),
            "tools/bench/main.cpp": source("src/io/files.h", "kernels/hopper/sm90/check.h", "<cuda.h>"),
        }), [])

    def test_a_header_of_a_later_folder(self):
        self.assertEqual(problems({"src/core/console.cpp": source("kernels/core/error.h", "src/io/files.h")}),
                         ['src/core/console.cpp: includes "src/io/files.h", but `src/io` comes after `src/core` in '
                          "docs/ARCHITECTURE.md"])

    def test_an_op_that_is_implemented_has_a_later_place_than_its_struct(self):
        self.assertEqual(problems({"kernels/cpu/run.cpp": source("kernels/ops/zero/op.h", "kernels/ops/zero/fill.h")}),
                         ['kernels/cpu/run.cpp: includes "kernels/ops/zero/fill.h", but `kernels/ops/NAME` comes after '
                          "`kernels/cpu` in docs/ARCHITECTURE.md"])
        self.assertEqual(problems({"kernels/ops/zero/op.h": source("kernels/ops.h")}),
                         ['kernels/ops/zero/op.h: includes "kernels/ops.h", but `kernels/ops.h` comes after '
                          "`kernels/ops/*/op.h` in docs/ARCHITECTURE.md"])

    def test_a_folder_below_another_has_a_place_of_its_own(self):
        self.assertEqual(problems({"src/engine/executor.cpp": source("src/engine/hopper/executor.h")}),
                         ['src/engine/executor.cpp: includes "src/engine/hopper/executor.h", but `src/engine/hopper` '
                          "comes after `src/engine` in docs/ARCHITECTURE.md"])

    def test_a_folder_without_a_place(self):
        self.assertEqual(problems({"src/misc/a.cpp": source(), "src/misc/b.cpp": source(), "src/a.cpp": source(),
                                   "src/main.h": source(), "kernels/ops/zero/deep/a.h": source()}),
                         [f"{folder}: has no place in the table of docs/ARCHITECTURE.md"
                          for folder in ("kernels/ops/zero/deep", "src", "src/misc")])

    def test_a_path_that_is_not_from_the_root(self):
        self.assertEqual(problems({"src/io/files.cpp": source("../core/console.h", "files.h")}),
                         [f'src/io/files.cpp: includes "{header}", which is no path from the root of the repository'
                          for header in ("../core/console.h", "files.h")])

    def test_a_header_of_the_tests_or_the_tools(self):
        self.assertEqual(problems({
            "src/io/files.cpp": source("tests/io/faults.h"),
            "src/train/run.cpp": source("tools/bench/timer.h"),
            "kernels/ops/zero/cpu.cpp": source("kernels/ops/zero/test_cases.h"),
        }), ['src/io/files.cpp: includes "tests/io/faults.h" of the tests',
             'src/train/run.cpp: includes "tools/bench/timer.h" of the tools',
             'kernels/ops/zero/cpu.cpp: includes "kernels/ops/zero/test_cases.h" of the tests'])

    def test_tests_may_include_anything(self):
        self.assertEqual(problems({
            "kernels/ops/zero/test.cpp": source("tests/kernels/fixture.h", "kernels/cpu/run.h", "<cuda_runtime.h>"),
            "src/core/test_files.cpp": source("src/train/run.h"),
            "tests/io/files_test.cpp": source("tests/io/faults.h", "kernels/hopper/ptx/tma.cuh"),
        }), [])


class Circles(unittest.TestCase):
    def test_two_folders(self):
        self.assertEqual(problems({
            "src/core/console.h": source("src/io/files.h"),
            "src/io/files.h": source("src/io/tokens.h"),
            "src/io/tokens.h": source("src/core/console.h"),
        }), ['src/core/console.h: includes "src/io/files.h", but `src/io` comes after `src/core` in '
             "docs/ARCHITECTURE.md",
             "a circle of includes: src/core/console.h -> src/io/files.h -> src/io/tokens.h -> src/core/console.h"])

    def test_folders_that_make_a_circle_without_headers_that_do(self):
        found = problems({
            "src/core/console.cpp": source("src/engine/device.h"),
            "src/io/files.h": source("src/core/console.h"),
            "src/engine/feed.h": source("src/io/files.h"),
        })
        self.assertEqual(found, ['src/core/console.cpp: includes "src/engine/device.h", but `src/engine` comes after '
                                 "`src/core` in docs/ARCHITECTURE.md"])

    def test_headers_of_one_folder(self):
        names = [f"src/io/{letter}.h" for letter in "dbac"]
        files = {name: source(after) for name, after in zip(names, names[1:] + names[:1])}
        files["src/io/other.h"] = source("src/io/d.h")
        self.assertEqual(problems(files), ["a circle of includes: src/io/a.h -> src/io/c.h -> src/io/d.h -> "
                                           "src/io/b.h -> src/io/a.h"])

    def test_a_header_that_includes_itself(self):
        self.assertEqual(problems({"tools/bench/a.h": source("tools/bench/a.h")}),
                         ["a circle of includes: tools/bench/a.h -> tools/bench/a.h"])

    def test_two_ways_to_a_header(self):
        self.assertEqual(problems({"src/io/a.h": source("src/io/b.h", "src/io/c.h"),
                                   "src/io/b.h": source("src/io/d.h"), "src/io/c.h": source("src/io/d.h"),
                                   "src/io/d.h": source()}), [])


class Cuda(unittest.TestCase):
    def test_a_header_of_the_toolkit(self):
        for name in ("cuda.h", "cuda_runtime.h", "cublasLt.h", "nvtx3/nvToolsExt.h", "cooperative_groups.h"):
            self.assertEqual(problems({"src/engine/device.cpp": source(f"<{name}>")}),
                             [f"src/engine/device.cpp: includes <{name}> outside CUDA's rooms"])
            self.assertEqual(problems({"src/engine/hopper/device.cpp": source(f"<{name}>")}), [])
        self.assertEqual(problems({"kernels/ops/zero/op.h": "  #  include <cuda_bf16.h>\n"}),
                         ["kernels/ops/zero/op.h: includes <cuda_bf16.h> outside CUDA's rooms"])

    def test_a_header_that_brings_one(self):
        files = {"kernels/hopper/sm90/check.h": source("kernels/hopper/sm90/stream.h"),
                 "kernels/hopper/sm90/stream.h": source("kernels/core/error.h", "<cuda_runtime.h>")}
        self.assertEqual(problems(files | {"kernels/ops/zero/cpu.cpp": source("kernels/hopper/sm90/check.h")}),
                         ['kernels/ops/zero/cpu.cpp: includes "kernels/hopper/sm90/check.h", which brings '
                          "<cuda_runtime.h>, outside CUDA's rooms"])
        self.assertEqual(problems(files | {"src/io/files.h": source("kernels/hopper/sm90/check.h"),
                                           "src/train/run.cpp": source("src/io/files.h")}),
                         ['src/io/files.h: includes "kernels/hopper/sm90/check.h", which brings <cuda_runtime.h>, '
                          "outside CUDA's rooms",
                          'src/train/run.cpp: includes "src/io/files.h", which brings <cuda_runtime.h>, outside '
                          "CUDA's rooms"])

    def test_device_code(self):
        self.assertEqual(problems({"src/engine/hopper/device.cpp": source("kernels/hopper/sm90/ring.cuh")}),
                         ['src/engine/hopper/device.cpp: includes "kernels/hopper/sm90/ring.cuh", and src/ has no '
                          "device code"])
        self.assertEqual(problems({"kernels/ops/zero/cpu.cpp": source("kernels/ops/zero/fill.cuh")}),
                         ['kernels/ops/zero/cpu.cpp: includes "kernels/ops/zero/fill.cuh", which brings device code, '
                          "outside CUDA's rooms"])
        for path in ("src/engine/hopper/copy.cu", "kernels/core/error.cuh", "src/io/files.cuh"):
            self.assertEqual(problems({path: source()}), [f"{path}: device code outside its rooms"])


class Lengths(unittest.TestCase):
    def test_a_long_file(self):
        self.assertEqual(problems({"tests/io/files_test.cpp": source(lines=400)}), [])
        self.assertEqual(problems({"tests/io/files_test.cpp": source(lines=401)}),
                         ["tests/io/files_test.cpp: 401 lines, at most 400: one idea a file"])


class TheTable(unittest.TestCase):
    def test_its_rows(self):
        self.assertEqual(check_folders.rows_of("""# A

## Folders and their order

Prose with `src/prose`.

| folder | holds |
|---|---|
| `kernels/core` | `kernels/none` |
| `kernels/ops/*/op.h`, `kernels/ops.h` | ops |

## Next

| `src/other` | no row |
"""), ["kernels/core", "kernels/ops/*/op.h", "kernels/ops.h"])
        self.assertEqual(check_folders.rows_of("# A\n\n| `src/core` | no table |\n"), [])

    def test_the_place_of_a_source(self):
        order = check_folders.Order(ROWS)
        for path, row in {"kernels/ops.h": "kernels/ops.h", "kernels/ops.cpp": "kernels/ops.h",
                          "kernels/ops/zero/op.h": "kernels/ops/*/op.h", "kernels/ops/zero/cpu.cpp": "kernels/ops/NAME",
                          "src/engine/hopper/a.h": "src/engine/hopper", "src/main.cpp": "src/main.cpp"}.items():
            self.assertEqual(ROWS[order.place(path)], row)
        for path in ("src/a.h", "src/engine/cpu/a.h", "kernels/ops/zero/deep/op.h"):
            self.assertIsNone(order.place(path))


if __name__ == "__main__":
    unittest.main()
