"""Every name that a Python file takes from another file of the project is there, also in scripts that need a GPU."""

import ast
import collections
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def defined(statements):
    """Names that a module has after these statements ran."""
    names = set()
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            names |= defined(ast.iter_child_nodes(node))
    return names


def missing(sources):
    """'file:line: module.name' of names that no file of that module has; sources: text by file."""
    trees = {file: ast.parse(text) for file, text in sources.items()}
    modules = collections.defaultdict(lambda: {"__doc__", "__file__"})
    for file, tree in trees.items():
        # Files of one name count together: the path that a script sets decides which of them it finds.
        folder, name = Path(file).parent, Path(file).stem
        modules[folder.name if name == "__init__" else name] |= defined(tree.body)
        if str(folder / "__init__.py") in trees:
            modules[folder.name].add(name)
    found = []
    for file, tree in trees.items():
        aliases = {}

        def check(node, module, name):
            module = module.split(".")[-1]
            if module in modules and name not in modules[module]:
                found.append(f"{file}:{node.lineno}: {module}.{name}")

        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                for name in node.names:
                    check(node, node.module, name.name)
            elif isinstance(node, ast.Import):
                aliases |= {name.asname or name.name: name.name for name in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
                check(node, aliases[node.value.id], node.attr)
    return found


class PythonImportsTest(unittest.TestCase):
    def test_missing_names_are_found(self):
        helper = "import os\nLIMIT = 3\ndef used():\n    pass\n"
        script = ("import helper as h\n"
                  "import page\n"
                  "def late():\n"
                  "    from helper import used, gone\n"
                  "    return h.LIMIT + h.os.sep + page.helper + page.top\n"
                  "print(h.lost)\n"
                  "print(page.bottom)\n")
        sources = {"page/__init__.py": "top = 1\n", "page/helper.py": helper, "script.py": script}
        self.assertEqual(missing(sources), ["script.py:4: helper.gone", "script.py:6: helper.lost",
                                            "script.py:7: page.bottom"])

    def test_project(self):
        files = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
        paths = files.stdout.split() or [str(path.relative_to(ROOT)) for top in ("data", "examples", "src", "tests",
                                         "tools") for path in (ROOT / top).rglob("*.py")]
        self.assertEqual(missing({path: (ROOT / path).read_text() for path in paths}), [])


if __name__ == "__main__":
    unittest.main()
