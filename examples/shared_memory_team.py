#!/usr/bin/env python3
"""A team of ranks without PyTorch: processes of one machine, whose memory is a file in /dev/shm.

    examples/shared_memory_team.py --ranks 2 --config demo.json --training.grad_accumulation_steps 2

It shows what libcoda needs from whoever starts its ranks (src/library/coda.h), and trains on a CPU. It needs the package
coda_torch: pip install . in the repository.
"""

import contextlib
import ctypes
import mmap
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading

from coda_torch import library

MOST_SHARED = 1 << 20  # bytes of a rank in share()


class SharedMemoryTeam(library.Team):
    def __init__(self, rank, ranks, barrier, folder):
        super().__init__(rank, ranks)
        self.barrier, self.folder = barrier, folder
        self.notes = self.map_file("notes", ranks * MOST_SHARED)
        self.memories, self.transfers = [], []

    def map_file(self, name, size):
        with open(os.path.join(self.folder, name), "a+b") as file:
            os.ftruncate(file.fileno(), size)
            return mmap.mmap(file.fileno(), size)

    def wait(self):
        try:
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise RuntimeError("another rank is gone") from None

    def memory(self, where, size):
        if where != library.HOST:
            raise RuntimeError("this example has memory of the host only: --device cpu")
        self.memories = [self.map_file(f"memory {rank}", size) for rank in range(self.ranks)]
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memories[self.rank]))

    def set_transfers(self, transfers):
        self.transfers = transfers
        self.wait()

    def share(self, mine):
        place = self.rank * MOST_SHARED
        self.notes[place:place + len(mine)] = mine
        self.wait()
        whole = b"".join(self.notes[rank * MOST_SHARED:rank * MOST_SHARED + len(mine)] for rank in range(self.ranks))
        self.wait()
        return whole

    def start(self, _transfer, _stream):
        pass  # everything that is to be moved lies in the file

    def finish(self, transfer, _stream):
        moved = self.transfers[transfer]
        self.wait()
        for other in range(self.ranks):
            place = moved.target + other * moved.bytes
            source = moved.source + self.rank * moved.bytes if moved.how == library.SCATTER else place
            if moved.how == library.SCATTER or other != self.rank:
                self.memories[self.rank][place:place + moved.bytes] = self.memories[other][source:source + moved.bytes]
        self.wait()

    def leave(self, _why):
        self.barrier.abort()


def run(rank, ranks, barrier, folder, flags):
    code = library.main(flags, SharedMemoryTeam(rank, ranks, barrier, folder))
    sys.stdout.flush()
    # A rank that ends breaks the barrier, for others too that have passed it and have not woken yet.
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait()
    os._exit(code)


def main():
    if len(sys.argv) < 3 or sys.argv[1] != "--ranks" or not sys.argv[2].isdecimal() or int(sys.argv[2]) < 1:
        sys.exit(__doc__)
    ranks, flags = int(sys.argv[2]), sys.argv[3:]
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // ranks)))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        spawn = multiprocessing.get_context("spawn")
        barrier = spawn.Barrier(ranks)
        others = [spawn.Process(target=run, args=(rank, ranks, barrier, folder, flags)) for rank in range(ranks)]
        for process in others:
            process.start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the ranks too
        waiting = {process.sentinel: process for process in others}
        while waiting:
            for sentinel in multiprocessing.connection.wait(list(waiting)):
                process = waiting.pop(sentinel)
                process.join()
                if process.exitcode != 0:
                    barrier.abort()
        return max(process.exitcode if process.exitcode >= 0 else 128 - process.exitcode for process in others)


if __name__ == "__main__":
    sys.exit(main())
