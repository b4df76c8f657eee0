"""What the scripts of tools/campaign share: stopping programs, configurations, and the record of a campaign."""

from __future__ import annotations

import collections
import datetime
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tools", "bench")]
import records  # noqa: E402

PASSED, FAILED, USAGE = 0, 1, 2
STOP_LIMIT_S = 10  # before a program is killed that does not stop, since it waits for a disk


class Failed(Exception):
    """The campaign could not be carried out; the message says why."""


def program(folder: str, name: str) -> str:
    path = os.path.abspath(os.path.join(folder, name))
    if not os.access(path, os.X_OK):
        raise Failed(f"{path} is not there; build it, or name its folder with --bin")
    return path


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def output_of(command: list[str], **options) -> str | None:
    """Standard output of a program that ends with 0; None for any other."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


_running: set[subprocess.Popen] = set()
_stopped = threading.Event()


def tree_of(pid: int) -> dict[int, str]:
    """A process and all that it has started, each with its state as /proc has it."""
    states, children = {}, collections.defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:  # it has ended
            continue
        states[int(name)] = state
        children[int(parent)].append(int(name))
    tree = [pid]
    for each in tree:
        tree += children[each]
    return {each: states[each] for each in tree if each in states}


def signal_all(number: int, pids) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def end_with_children(pid: int) -> None:
    """Kills a process and all that it has started: compute-sanitizer's program outlives it otherwise. All are stopped
    first. Otherwise a process could start another one after the look at its children, and its end would leave nothing
    that leads to that one."""
    stopped, limit = set(), time.monotonic() + STOP_LIMIT_S
    while time.monotonic() < limit:
        tree = tree_of(pid)
        signal_all(signal.SIGSTOP, tree.keys() - stopped)
        if stopped >= tree.keys() and all(state in "TtZX" for state in tree.values()):
            break
        stopped |= tree.keys()
        time.sleep(0.001)
    signal_all(signal.SIGKILL, tree_of(pid))


def run(command: list[str], timeout: float | None = None, **options) -> subprocess.CompletedProcess:
    """As subprocess.run with its output as text, from any thread. The program and all that it has started end with
    the campaign, and at the limit, where this raises subprocess.TimeoutExpired."""
    if _stopped.is_set():
        raise Failed("the campaign was stopped")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace", **options)
    _running.add(process)
    try:
        if _stopped.is_set():  # since the line above
            end_with_children(process.pid)
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        end_with_children(process.pid)
        process.communicate()
        raise
    finally:
        _running.discard(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def build(preset: str, jobs: int, targets: list[str], runner: Sequence[str] = ()) -> None:
    """Builds these targets of a preset; `runner` is what CMake is started with."""
    for command in (["cmake", "--preset", preset],
                    [*runner, "cmake", "--build", "--preset", preset, "-j", str(jobs), "--target", *targets]):
        done = run(command, cwd=ROOT)
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
            raise Failed(f"{' '.join(command)} ended with {done.returncode}:\n{said}")


def _stop(number, _frame) -> None:
    _stopped.set()
    for process in list(_running):
        end_with_children(process.pid)
    sys.exit(128 + number)


def commit() -> str:
    """Of the sources here, as cmake/GitCommit.cmake has it: campaigns also run where a build was copied to, which may
    have no CMake."""
    head = (output_of(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT) or "").strip()
    changes = head and output_of(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT)
    return head + ("-dirty" if changes else "") or "no git"


def gpu_name() -> str | None:
    named = output_of(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) if shutil.which("nvidia-smi") else ""
    return named.splitlines()[0].strip() if named else None


def add_record_options(parser) -> None:
    group = parser.add_argument_group("record")
    group.add_argument("--record", action="store_true",
                       help="merge the outcome into the result files (tools/bench/records.py)")
    group.add_argument("--results", default=records.RESULTS, metavar="DIR", help="default: tools/bench/results")
    group.add_argument("--gpu", metavar="NAME",
                       help='whose results these are, such as "NVIDIA H200" (default: this machine\'s GPU)')


def check_record_options(parser, options) -> None:
    """Before hours of work, not after them."""
    if not options.record:
        return
    options.gpu = options.gpu or gpu_name()
    if not options.gpu:
        parser.error("--record: this machine has no GPU; say with --gpu whose results these are")
    try:
        records.gpu_prefix(options.gpu)
    except records.RecordError as error:
        parser.error(f"--gpu: {error}")


class Stopwatch:
    def __init__(self):
        self.started = time.monotonic()

    def seconds(self) -> float:
        return round(time.monotonic() - self.started, 1)


def record(options, outcomes: list[dict], what: str = "reliability") -> None:
    """Merges the outcomes, each {campaign, device, runs, failures, seconds, ...} or as `what` has them, if --record is
    given."""
    if not options.record or not outcomes:
        return
    words = [os.path.relpath(os.path.abspath(sys.argv[0]), ROOT), *sys.argv[1:]]
    stamp = {"gpu": options.gpu, "command": shlex.join(words), "commit": commit(),
             "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
    try:
        path = records.merge(options.results, what, stamp, outcomes)
    except (records.RecordError, OSError) as error:
        raise Failed(f"not recorded: {error}") from None
    print(f"{len(outcomes)} {'record' if len(outcomes) == 1 else 'records'} into {path}")


def positive(text: str) -> int:
    """For argparse: a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def value_of(text: str):
    """The value of a configuration's key as a flag gives it."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def keys_of(parser, words: list[str]) -> dict:
    """What argparse did not know: keys of the configuration as flags, with their values."""
    keys = {}
    for flag, value in zip(words[::2], words[1::2]):
        if not re.fullmatch(r"--(\w+\.\w+|precision)", flag):
            parser.error(f"unknown argument '{flag}'; a key is such as --training.seed 3")
        keys[flag[2:]] = value_of(value)
    if len(words) % 2:
        parser.error(f"unknown argument '{words[-1]}'")
    return keys


def main_of(function) -> None:
    """Runs function() and ends with its exit status; a Failed is one line on stderr. Ctrl-C, SIGTERM and SIGHUP end
    the programs of run() too."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGHUP under nohup
            signal.signal(number, _stop)
    try:
        sys.exit(function())
    except Failed as failure:
        print(f"{os.path.basename(sys.argv[0])}: {failure}", file=sys.stderr)
        sys.exit(FAILED)
