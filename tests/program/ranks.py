"""coda_train on several ranks, as a user starts it: by the launcher of coda_torch, or a process for each rank.

The environment variable CODA_LIBRARY is libcoda's path (default: lib/libcoda.so.1 in the build folder of the program).
What stands in PYTHONPATH comes before the repository's coda_torch.
"""

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from program import DONE, PROGRAM, ROOT, RUNTIME, TIMEOUT_S, ProgramTestCase, Result

sys.path.insert(0, os.path.join(ROOT, "tests"))
sys.path.insert(0, os.path.join(ROOT, "src"))
import sanitizer  # noqa: E402
from coda_torch.host import held_port  # noqa: E402

LIBRARY = os.path.abspath(os.environ.get(
    "CODA_LIBRARY", os.path.join(os.path.dirname(PROGRAM), "..", "lib", "libcoda.so.1")))
PYTHONS = (sys.executable, "/usr/bin/python3", os.path.join(ROOT, "build", "venv", "bin", "python3"))
NEEDS_TORCH = ("needs a Python that has PyTorch with gloo, and none of " + ", ".join(PYTHONS) +
               " has it: apt-get install python3-torch")

# A step has 12 micro-batches, which 2, 3 and 4 ranks can share. Neither 2 ranks nor 3 can divide the embedding, a
# layer or the head without a rest: they have 160, 205 and 160 units of 64 weights.
CHANGES = {"model.hidden_size": 40, "model.intermediate_size": 56, "model.num_attention_heads": 5,
           "model.num_key_value_heads": 5, "training.micro_batch_size": 1, "training.grad_accumulation_steps": 12}


@functools.cache
def find_python():
    """A Python that has PyTorch with gloo, or None."""
    says = "import torch.distributed as d; print(d.is_available() and d.is_gloo_available())"
    for python in PYTHONS:
        try:
            done = subprocess.run([python, "-c", says], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.stdout.strip() == "True":
            return python
    return None


def read_proc(pid, name):
    """Empty once the process has ended."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def pids_of(process):
    """The processes of the ranks that a launcher has started, by rank."""
    found = {}
    for pid in read_proc(process.pid, f"task/{process.pid}/children").split():
        rank = re.search(r"\0RANK=(\d+)\0", f"\0{read_proc(pid, 'environ')}\0")
        if rank:
            found[int(rank[1])] = int(pid)
    return found


def works_in(pid, folder):
    try:
        return os.path.commonpath([os.readlink(f"/proc/{pid}/cwd"), folder]) == folder
    except OSError:  # it has ended, or is another user's
        return False


def end_those_in(folder):
    """Kills the processes that work in a folder: a rank may have outlived its launcher."""
    while pids := [int(pid) for pid in os.listdir("/proc") if pid.isdecimal() and works_in(pid, folder)]:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


class RanksTestCase(ProgramTestCase):
    """A temporary folder with text.txt, in which ranks run on the CPU. Configurations are CONFIG with CHANGES."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not os.path.exists(LIBRARY):
            raise FileNotFoundError(f"there is no {LIBRARY}: build libcoda, or let CODA_LIBRARY name it")
        if sanitizer.sanitized(LIBRARY):
            raise unittest.SkipTest(f"{LIBRARY} has a sanitizer, which a Python cannot load")
        cls.python = find_python()
        if cls.python is None:
            raise unittest.SkipTest(NEEDS_TORCH)

    def setUp(self):
        super().setUp()
        self.addCleanup(end_those_in, os.path.realpath(self.folder))

    def config(self, changes=None, name="config.json", base=None):
        return super().config({**CHANGES, **(changes or {})}, name, base)

    def environment(self, threads):
        paths = [os.environ.get("PYTHONPATH"), os.path.join(ROOT, "src")]
        return {**super().environment(threads), "CODA_LIBRARY": LIBRARY, "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run_python(self, *arguments, python=None, expect=DONE, **options):
        """Runs a Python that has torch, or another one, to its end and checks its exit code."""
        done = subprocess.run([python or self.python, *arguments], cwd=self.folder, env=self.environment(1),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                              **options)
        result = Result(done.returncode, done.stdout, done.stderr)
        self.assertEqual(result.code, expect, result)
        return result

    def ranks(self, count, changes=None, *flags, expect=DONE):
        """A run of `count` ranks by the launcher with a configuration of these changes."""
        result = self.run_python("-m", "coda_torch", "--ranks", str(count), "--config", self.config(changes), *flags,
                                 expect=expect)
        if expect == DONE:
            said = [line for line in result.err.splitlines() if not line.startswith("skipped ")]
            self.assertEqual(said, [], "a run without a fault writes nothing to stderr")
        return result

    def start_ranks(self, count, changes=None, *flags):
        """The running launcher; its output, and its ranks', goes to output.txt and errors.txt."""
        return self.start_launcher("-m", "coda_torch", "--ranks", str(count), "--config", self.config(changes), *flags)

    def start_launcher(self, *arguments):
        with open(self.path("output.txt"), "wb") as output, open(self.path("errors.txt"), "wb") as errors:
            process = subprocess.Popen([self.python, *arguments], cwd=self.folder, env=self.environment(1),
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        self.end_later(process)
        return process

    def end_later(self, process):
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def errors(self):
        return self.read("errors.txt").decode()

    def each_rank(self, flags, folders=("", ""), environments=({}, {}), preexec=(None, None), while_running=None):
        """Runs one process per rank. Each has its own flags, folder, environment and preexec_fn; all read config.json.
        Calls while_running(processes). Returns a Result per rank."""
        port, processes = self.enterContext(held_port()), []
        for rank, own in enumerate(flags):
            environment = {**self.environment(1), "RANK": str(rank), "WORLD_SIZE": str(len(flags)),
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **environments[rank]}
            process = subprocess.Popen([self.python, "-m", "coda_torch.train", "--config", "config.json", *own],
                                       cwd=self.path(folders[rank]), env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=preexec[rank])
            self.end_later(process)
            processes.append(process)
        if while_running:
            while_running(processes)
        said = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        return [Result(process.returncode, *words) for process, words in zip(processes, said)]

    def separate_folders(self):
        """Folders of 2 ranks, with the same configuration and data; each is a working directory for each_rank()."""
        for rank in "01":
            os.mkdir(self.path(rank))
            for file in ("config.json", "text.txt"):
                shutil.copy(self.path(file), self.path(rank, file))
        return "01"

    def assert_told_once(self, results, code, says):
        """All ranks have ended with the code; the first one says why, and the others nothing."""
        first, *others = results
        self.assertEqual([result.code for result in results], [code] * len(results), "\n".join(map(str, results)))
        self.assert_message(first, says)
        for other in others:
            self.assertEqual(other.out + other.err, "")

    def refuse_ranks(self, changes, *flags, code=RUNTIME, says=()):
        """A run of 2 ranks that must fail with the code, one message, and no new file."""
        self.config(changes)
        before = self.tree()
        result = self.ranks(2, changes, *flags, expect=code)
        # The launcher may add which rank has ended.
        said = [line for line in result.err.splitlines() if not line.startswith("coda_torch: rank ")]
        self.assertEqual(len(said), 1, result)
        self.assert_message(Result(result.code, "", said[0]), says)
        self.assertEqual(self.tree(), before, "a refused run changed the folder")

    def state(self, run="run", step=None):
        """SHA-256 of each file of weights and moments in the checkpoint of a step; by default of the last one."""
        name = self.checkpoints(run)[-1] if step is None else f"step_{step:08}"
        folder = os.path.join(run, "checkpoints", name)
        files = [file for file in self.tree(folder) if file.endswith(".bin")]
        self.assertIn("master.bin", files)
        return {file: hashlib.sha256(self.read(folder, file)).hexdigest() for file in files}

    def keep(self, name):
        """Gives the folder run another name, so that another run can have the same configuration."""
        os.rename(self.path("run"), self.path(name))

    def assert_close(self, run, other, tolerance):
        """Losses of the same steps, relative."""
        losses, others = self.log(run).losses(), self.log(other).losses()
        self.assertEqual(len(losses), len(others))
        for step, (loss, expected) in enumerate(zip(losses, others), start=1):
            self.assertLessEqual(abs(loss - expected), tolerance * expected, f"step {step}: {loss}, {expected}")
