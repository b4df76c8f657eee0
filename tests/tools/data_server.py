"""A host on this machine for the tests of data/, with a stand-in for coda_tokenize."""

import hashlib
import http.server
import os
import re
import subprocess
import sys
import threading
from unittest import mock

from logs import TOOLS, LogTestCase

DATA = os.path.normpath(os.path.join(TOOLS, "..", "data"))
sys.path.insert(0, DATA)

import fetch

# The least that the scripts read of a tokenizer.json.
TOKENIZER = {"added_tokens": [{"id": 7, "content": "<|endoftext|>"}], "model": {"vocab": {"a": 0, "b": 1}}}

# A stand-in for coda_tokenize: writes its arguments into shards of the names that the real one gives.
TOKENIZE = """#!{python}
import os, sys
options = dict(zip(sys.argv[1:], sys.argv[2:]))
parts = ["_train", "_val"] if float(options.get("--val-fraction", 0)) else [""]
number = "_000000" if "--shard-tokens" in options else ""
for part in parts:
    with open(options["--out"] + part + number + ".bin", "w") as file:
        file.write(" ".join(sys.argv[1:]))
with open(os.path.join(os.path.dirname(__file__), "calls"), "a") as file:
    file.write("x")
"""


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Server(http.server.BaseHTTPRequestHandler):
    """Files of the class with ranges. `cut` bytes after the start of each answer the connection ends."""

    files: dict[str, bytes] = {}
    stated: dict[str, str] = {}
    cut = None
    ranges = True
    chunked = False
    asked: list = []
    protocol_version = "HTTP/1.0"

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        self.asked.append((name, self.headers.get("Range")))
        if self.path.startswith("/moved/"):  # as Hugging Face sends its readers on
            self.send_response(302)
            self.send_header("Location", "/" + name)
            self.send_header("X-Linked-ETag", f'"{self.stated[name]}"')
            self.end_headers()
            return
        if name not in self.files:
            self.send_error(404)
            return
        content, first = self.files[name], 0
        if self.ranges and (wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))):
            first = int(wanted[1])
            if first >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
        else:
            self.send_response(200)
        if not self.chunked:
            self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first:] if self.cut is None else content[first : first + self.cut])

    def log_message(self, *arguments):
        pass


class DataCase(LogTestCase):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        for name, value in (
            ("files", {}),
            ("stated", {}),
            ("cut", None),
            ("ranges", True),
            ("chunked", False),
            ("asked", []),
        ):
            setattr(Server, name, value)
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        environment = mock.patch.dict(os.environ, {"no_proxy": "127.0.0.1"})
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("CODA_DATA_MIRROR", None)

    def source(self, name, sha256=None, moved=False):
        return fetch.Source(f"{self.base}/{'moved/' if moved else ''}{name}", name, sha256)

    def fetch(self, *arguments, **options):
        with mock.patch.object(sys, "stderr"), mock.patch.object(fetch.time, "sleep"):
            return fetch.fetch(self.source(*arguments, **options), self.folder)

    def problem(self, *arguments, **options):
        with self.assertRaises(fetch.Problem) as caught:
            self.fetch(*arguments, **options)
        return str(caught.exception)

    def content(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def script(self, name, *arguments, mirror=None):
        environment = {**os.environ, "CODA_DATA_MIRROR": mirror or self.base}
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(DATA, name), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        self.assertNotIn("Traceback", done.stderr)
        return done

    def stand_in(self):
        os.makedirs(self.path("bin"), exist_ok=True)
        with open(self.path("bin/coda_tokenize"), "w", encoding="utf-8") as file:
            file.write(TOKENIZE.format(python=sys.executable))
        os.chmod(self.path("bin/coda_tokenize"), 0o755)
        return self.path("bin/coda_tokenize")

    def calls(self):
        return len(self.content("bin/calls")) if os.path.exists(self.path("bin/calls")) else 0
