"""The documents: links, images and paths lead somewhere, words are plain, and the README stays short."""

import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FOLDERS = ("kernels", "src", "tests", "tools", "docs", "configs", "data")
README_LINES, README_COLUMNS = 150, 120

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
BLOCK = re.compile(r"^(?: {4}|\t).*$", re.M)
SPAN = re.compile(r"(`+)(.+?)\1", re.S)
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*")
PLACEHOLDER = re.compile(r"\b(?:NAME|FILE|DIR)\b")
BANNED = re.compile(r'(?<!["\w-])(alone|beside|anew)(?!["\w-])', re.I)  # CONTRIBUTING.md quotes them
MADE = re.compile(r"data/\w+/")  # data sets, which the scripts of data/ make


def documents(root):
    """Every .md file that is the project's own: what git tracks, or would."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=root,
                            capture_output=True, text=True, check=True)
    return sorted(path for path in set(listed.stdout.splitlines()) if os.path.exists(os.path.join(root, path)))


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def anchors(text):
    """Of the headings, as GitHub makes them."""
    found, seen = set(), {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", text), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return found


def link_problems(root, path):
    text = read(root, path)
    for target in LINK.findall(SPAN.sub("", BLOCK.sub("", FENCE.sub("", text)))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if to.startswith("..") or not os.path.exists(os.path.join(root, to)):
            yield f"{path}: the link {target} leads nowhere"
        elif anchor and to.endswith(".md") and anchor not in anchors(read(root, to)):
            yield f"{path}: the link {target} names no heading of {to}"


def path_problems(root, path):
    for _, span in SPAN.findall(BLOCK.sub("", FENCE.sub("", read(root, path)))):
        for word in span.split():
            word = word.rstrip(".,:;")
            if PATH.fullmatch(word) and not PLACEHOLDER.search(word) and not MADE.match(word):
                if not os.path.exists(os.path.join(root, word)):
                    yield f"{path}: there is no `{word}`"


def word_problems(root, path):
    for number, line in enumerate(read(root, path).splitlines(), 1):
        for word in BANNED.findall(line):
            yield f"{path}:{number}: the word {word}, for which CONTRIBUTING.md has a plainer one"


def readme_problems(root):
    lines = read(root, "README.md").splitlines()
    if len(lines) > README_LINES:
        yield f"README.md: {len(lines)} lines, at most {README_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > README_COLUMNS:
            yield f"README.md:{number}: {len(line)} columns, at most {README_COLUMNS}"


def problems(root):
    found = list(readme_problems(root))
    for path in documents(root):
        found += [*link_problems(root, path), *path_problems(root, path), *word_problems(root, path)]
    return found


@unittest.skipUnless(os.path.exists(os.path.join(ROOT, ".git")), "not in a git repository")
class DocumentsTest(unittest.TestCase):
    def test_documents(self):
        self.assertGreater(len(documents(ROOT)), 5)
        found = problems(ROOT)
        self.assertEqual(found, [], "\n" + "\n".join(found))


class ProblemsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        os.makedirs(os.path.join(self.root, "src", "core"))
        subprocess.run(["git", "init", "--quiet", self.root], check=True)

    def problems(self, text):
        with open(os.path.join(self.root, "README.md"), "w", encoding="utf-8") as file:
            file.write(text)
        return problems(self.root)

    def test_links(self):
        self.assertEqual(self.problems("# A word: here!\n[a](#a-word-here) [b](src/core) [c](https://x.y/z)\n"), [])
        self.assertEqual(self.problems("# A\n# A\n[x](#a-1) [![i](src)](src/core)\n"), [])
        self.assertEqual(self.problems("`[a](b)`\n\n    [a](b)\n\n```\n[a](b)\n```\n"), [])
        self.assertEqual(self.problems("[a](src/none.md)\n"), ["README.md: the link src/none.md leads nowhere"])
        self.assertEqual(self.problems("![a](none.png)\n"), ["README.md: the link none.png leads nowhere"])
        self.assertEqual(self.problems("# A\n[a](#b)\n"), ["README.md: the link #b names no heading of README.md"])

    def test_paths(self):
        self.assertEqual(self.problems("`src/core`, `ls src/core/`, `src/*.h`, `src/<name>/x.h`, `a/b`, src/x\n"), [])
        self.assertEqual(self.problems("`data/NAME.py`, `data/stories/x.bin`\n"), [])
        self.assertEqual(self.problems("`ls src/gone.h`\n"), ["README.md: there is no `src/gone.h`"])
        self.assertEqual(self.problems("`kernels/gone`,\n"), ["README.md: there is no `kernels/gone`"])

    def test_words(self):
        self.assertEqual(self.problems('"only", not "alone"; besides, `--alone`, standalone\n'), [])
        for word in ("alone", "Beside", "anew"):
            self.assertEqual(self.problems(f"a\nb {word} c\n"),
                             [f"README.md:2: the word {word}, for which CONTRIBUTING.md has a plainer one"])

    def test_readme(self):
        self.assertEqual(self.problems("é" * 120 + "\n"), [])
        self.assertEqual(self.problems("x" * 121 + "\n"), ["README.md:1: 121 columns, at most 120"])
        self.assertEqual(self.problems("\n" * 150), [])
        self.assertEqual(self.problems("\n" * 151), ["README.md: 151 lines, at most 150"])


if __name__ == "__main__":
    unittest.main()
