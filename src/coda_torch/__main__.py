"""Starts the ranks of coda_train on this machine, and ends with their exit code.

    python3 -m coda_torch --ranks 2 --config llama1b.json ...

What follows the number of ranks are the flags of coda_train. torchrun does the same on several machines; its own exit
code is 1 for every failure, where this one is coda_train's: 0 done, 1 error, 2 bad use, 3 a result that is not finite,
130 interrupted and saved.

SIGINT, SIGTERM, SIGHUP and SIGUSR1 go to every rank. When a rank ends otherwise than with 0 or 130, the others are
asked to stop, and after 60 seconds they are killed. If the launcher itself is killed, they stop as after SIGTERM.
"""

import math
import os
import signal
import subprocess
import sys
import time

from coda_torch.host import cores_of_a_rank, held_port
from coda_torch.library import DONE, INTERRUPTED, USAGE

AGREE_S = 0.5  # ranks that have found the same error end one after the other
GRACE_S = 60
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
EXPECTED = (DONE, INTERRUPTED)


def start(ranks, flags, port):
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                   "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "CODA_TORCH_LAUNCHER": str(os.getpid())}
    if "OMP_NUM_THREADS" not in environment:
        # A team's number of threads reaches only libcoda's main thread; PyTorch's own read this variable.
        environment["OMP_NUM_THREADS"] = str(cores_of_a_rank(ranks))
    # A group of their own: Ctrl-C of the terminal would reach them twice, and a second one ends a rank at once.
    return [subprocess.Popen([sys.executable, "-m", "coda_torch.train", *flags], start_new_session=True,
                             env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)]


def code_of(status):
    return status if status >= 0 else 128 - status


def watch(processes):
    """Waits for all; the exit code of the first that failed, else of the first rank."""
    failed, running = None, True
    ask = deadline = math.inf  # when the others are asked to stop, and when they are killed
    while running:
        running = any(process.poll() is None for process in processes)  # before each is looked at: none is missed
        for rank, process in enumerate(processes):
            status = process.poll()
            if status is None or status in EXPECTED or failed is not None:
                continue
            failed, ask = code_of(status), time.monotonic() + (AGREE_S if status > 0 else 0)
            deadline = ask + GRACE_S
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
            print(f"coda_torch: rank {rank} (pid {process.pid}) {how}; the others are asked to stop", file=sys.stderr,
                  flush=True)
        if time.monotonic() >= ask:
            send(processes, signal.SIGTERM)
            ask = math.inf
        if time.monotonic() > deadline:
            send(processes, signal.SIGKILL)
        time.sleep(0.05)
    return processes[0].returncode if failed is None else failed


def send(processes, number):
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def main():
    words = sys.argv[1:]
    if len(words) < 2 or words[0] != "--ranks" or not words[1].isdecimal() or int(words[1]) < 1:
        print(__doc__.strip(), file=sys.stderr)
        return USAGE
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # in the ranks too: before libcoda handles it nothing can be saved
    with held_port() as port:
        processes = start(int(words[1]), words[2:], port)
        for number in FORWARDED:
            signal.signal(number, lambda received, _frame: send(processes, received))
        return watch(processes)


if __name__ == "__main__":
    sys.exit(main())
