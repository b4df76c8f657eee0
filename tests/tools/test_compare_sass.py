"""tools/compare_sass with a stand-in for cuobjdump: the object files hold what it would print."""

import os
import subprocess
import sys
import unittest

from logs import TOOLS, LogTestCase

CUOBJDUMP = '#!/bin/bash\n[[ $1 == --dump-sass ]] && exec cat "$2"\nexec cat "$2.usage"\n'
LOAD = ("LDC R1, c[0x0][0x28]", "00000a00ff017b82", "000fe20000000800")
ADD = ("IADD3 R5, P1, R5, UR4, RZ", "0000000405057c10", "001fc8000ff3e0ff")
EXIT = ("EXIT", "000000000000794d", "000fea0003800000")


class CompareSassTest(LogTestCase):
    def setUp(self):
        super().setUp()
        self.put("bin/cuobjdump", CUOBJDUMP)
        os.chmod(self.path("bin/cuobjdump"), 0o755)

    def put(self, file, text):
        os.makedirs(os.path.dirname(self.path(file)), exist_ok=True)
        with open(self.path(file), "w", encoding="utf-8") as out:
            out.write(text)

    def object(self, file, kernels, registers=16):
        """An object file of {name: instructions}."""
        sass, usage = "\tcode for sm_90a\n\t.target\tsm_90a\n", "Resource usage:\n Common:\n  GLOBAL:0\n"
        for name, code in kernels.items():
            sass += f"\n\t\tFunction : {name}\n\t.headerflags\t@\"EF_CUDA_SM90\"\n"
            for i, (text, low, high) in enumerate(code):
                sass += f"        /*{16 * i:04x}*/    {text} ;    /* 0x{low} */\n{' ' * 40}/* 0x{high} */\n"
            sass += "\t\t..........\n"
            usage += f" Function {name}:\n  REG:{registers} STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:556 TEXTURE:0\n"
        self.put(file, sass)
        self.put(file + ".usage", usage)

    def compare(self, *arguments, expect):
        environment = {**os.environ, "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        done = subprocess.run([sys.executable, "-B", os.path.join(TOOLS, "compare_sass"), *arguments], cwd=self.folder,
                              env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stderr if expect == 2 else done.stdout

    def test_names_and_files_do_not_count(self):
        self.object("old/a.cu.o", {"_Z3onev": [LOAD, EXIT], "_Z3twov": [LOAD, ADD, EXIT]})
        self.object("new/b/c.cu.o", {"_Z5threev": [LOAD, ADD, EXIT]})
        self.object("new/d.cu.o", {"_Z4fourv": [LOAD, EXIT]})
        self.assertIn("equal: 2\n", self.compare("old", "new", expect=0))
        self.assertIn("equal: 2\n", self.compare("old", "new/b/c.cu.o,new/d.cu.o", expect=0))

    def test_symbols_do_not_count(self):
        def code(symbol, offset, low):
            return [(f"MOV R4, 32@lo({symbol})", low, "000fe20000000f00"),
                    (f"LDC.64 R2, c[0x4][0x{offset}]", low, "000fe20000000a00")]

        self.object("old/a.cu.o", {"_Z3onev": code("table", "8", "0000000000047802")})
        self.object("new/a.cu.o", {"_Z3onev": code("other_table", "10", "0000001000047802")})
        self.assertIn("equal: 1\n", self.compare("old", "new", expect=0))

    def test_what_counts(self):
        self.object("old/a.cu.o", {"_Z3onev": [LOAD, ADD, EXIT]})
        stall = (ADD[0], ADD[1], "001fca000ff3e0ff")
        for changed, line in ((("IADD3 R5, P1, R6, UR4, RZ", *ADD[1:]), "+ IADD3 R5, P1, R6"), (stall, "+ IADD3 R5")):
            self.object("new/a.cu.o", {"_Z3onev": [LOAD, changed, EXIT]})
            out = self.compare("old", "new", expect=1)
            self.assertIn("different: 1\n  one()", out)
            self.assertIn("from instruction 1 on\n      - IADD3 R5, P1, R5", out)
            self.assertIn(line, out)
        self.object("new/a.cu.o", {"_Z3onev": [LOAD, ADD, EXIT]}, registers=24)
        self.assertIn("+ sm_90a REG:24", self.compare("old", "new", expect=1))
        self.object("new/a.cu.o", {"_Z3onev": [LOAD, ADD, EXIT, EXIT]})
        self.assertIn("from instruction 3 on\n      + EXIT", self.compare("old", "new", expect=1))

    def test_removed_and_added(self):
        self.object("more/a.cu.o", {"_Z3onev": [LOAD, EXIT], "_Z3twov": [LOAD, EXIT], "_Z5otherv": [ADD, EXIT]})
        self.object("less/a.cu.o", {"_Z3onev": [LOAD, EXIT]})
        out = self.compare("more", "less", expect=1)
        self.assertIn("equal: 1\nonly in OLD: 2\n", out)
        self.assertIn("has this code fewer times, as one()", out)
        self.compare("more", "less", "--allow-added", expect=1)
        self.compare("more", "less", "--allow-removed", expect=0)
        self.assertIn("only in NEW: 2\n", self.compare("less", "more", expect=1))
        self.compare("less", "more", "--allow-added", expect=0)

    def test_a_changed_kernel_is_not_a_removed_one(self):
        self.object("old/a.cu.o", {"_Z9operationi": [LOAD, ADD, EXIT]})
        self.object("new/a.cu.o", {"_Z9operationl": [LOAD, EXIT]})
        self.assertIn("-> operation(long)",
                      self.compare("old", "new", "--allow-removed", "--allow-added", expect=1))

    def test_nothing_to_compare(self):
        self.object("old/a.cu.o", {})
        self.put("empty/a.o", "")
        self.assertIn("old: no kernels", self.compare("old", "old", expect=2))
        self.assertIn("empty: no *.cu.o", self.compare("empty", "old", expect=2))
        self.assertIn("no such file", self.compare("a.o", "old", expect=2))
        self.assertIn("--jobs", self.compare("old", "old", "--jobs", "0", expect=2))
        self.put("bin/cuobjdump", "#!/bin/bash\necho 'cuobjdump fatal   : no nvdisasm' >&2\n")
        self.assertIn("no nvdisasm", self.compare("old", "old", expect=2))


if __name__ == "__main__":
    unittest.main()
