"""The ranks of torch.distributed as a team: gloo for what the host shares and for a CPU's memory, NCCL for a GPU's."""

import datetime
import mmap
import os
import time

import torch
import torch.distributed as dist

from coda_torch import library
from coda_torch.host import cores_of_a_rank

ROLL_CALL_S = 3.0


def threads_of_a_rank(local_ranks):
    """OpenMP threads: 0, as OMP_NUM_THREADS says, unless torchrun said it, which always says 1."""
    if "OMP_NUM_THREADS" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ:
        return 0
    return cores_of_a_rank(local_ranks)


class ProcessTeam(library.Team):
    """Made where the environment has what torchrun sets: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT."""

    def __init__(self, timeout_s=1800):
        store, rank, ranks = next(dist.rendezvous("env://"))
        local, local_ranks = (int(os.environ.get(name, default)) for name, default in
                              (("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)))
        super().__init__(rank, ranks, device=local, threads=threads_of_a_rank(local_ranks))
        self.store = dist.PrefixStore("coda", store)
        self.timeout = datetime.timedelta(seconds=timeout_s)
        dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=ranks,
                                timeout=self.timeout)
        self.mover = None  # what moves the transfers: of the host's memory or the GPU's

    def memory(self, where, size):
        self.mover = (HostMover if where == library.HOST else self._gpu_mover())(self, size)
        return self.mover.base

    def _gpu_mover(self):
        from coda_torch.gpu_mover import GpuMover  # a CPU needs none of it
        return GpuMover

    def set_transfers(self, transfers):
        self.mover.set_transfers(transfers)

    def share(self, mine):
        parts = [torch.empty(len(mine), dtype=torch.uint8) for _ in range(self.ranks)]
        self._named(lambda: dist.all_gather(parts, torch.frombuffer(bytearray(mine), dtype=torch.uint8)))
        return b"".join(bytes(part.tolist()) for part in parts)

    def start(self, transfer, stream):
        self._named(lambda: self.mover.start(transfer, stream))

    def finish(self, transfer, stream):
        self._named(lambda: self.mover.finish(transfer, stream))

    def leave(self, why):
        number = self.store.add("left", 1)
        self.store.set(f"left {number}", f"rank {self.rank} has stopped: {why}")

    def close(self):
        """Waits until all ranks have come to the end, as they need the store, which is in the first one's process.
        Whether they all have."""
        try:
            dist.barrier()
        except RuntimeError:
            return False
        return True

    def _named(self, call):
        """Calls; an error names the lost rank, which the messages of gloo and NCCL do not."""
        try:
            call()
        except RuntimeError as error:
            raise RuntimeError(self._who_is_gone(str(error).strip().splitlines()[0])) from error

    def _who_is_gone(self, said):
        try:
            if self.store.add("left", 0) > 0:
                return self.store.get("left 1").decode()
            self.store.add(f"here {self.rank}", 1)
            deadline = time.monotonic() + ROLL_CALL_S
            missing = list(range(self.ranks))
            while missing and time.monotonic() < deadline:
                missing = [rank for rank in missing if self.store.add(f"here {rank}", 0) == 0]
                time.sleep(0.05)
            named = " and ".join(f"rank {rank}" for rank in missing)
            return f"{named} does not answer ({said})" if missing else f"the ranks cannot reach each other: {said}"
        except RuntimeError:
            return f"rank 0 does not answer ({said})"  # it has the store


class HostMover:
    """Transfers between the memories of CPUs."""

    def __init__(self, team, size):
        self.rank, self.ranks = team.rank, team.ranks
        self.pages = mmap.mmap(-1, size)  # zeroed, and taken when first touched
        self.bytes = torch.frombuffer(self.pages, dtype=torch.uint8)
        self.base = self.bytes.data_ptr()
        self.transfers, self.under_way = [], {}

    def set_transfers(self, transfers):
        self.transfers = transfers

    def start(self, number, _stream):
        moved = self.transfers[number]
        if moved.bytes == 0:
            return
        whole = self.bytes[moved.target:moved.target + self.ranks * moved.bytes]
        if moved.how == library.SCATTER:
            parts = self.bytes[moved.source:moved.source + self.ranks * moved.bytes]
            self.under_way[number] = dist.all_to_all_single(whole, parts, async_op=True)
        else:
            parts = list(whole.view(self.ranks, moved.bytes))
            self.under_way[number] = dist.all_gather(parts, parts[self.rank], async_op=True)

    def finish(self, number, _stream):
        work = self.under_way.pop(number, None)
        if work is not None:
            work.wait()
