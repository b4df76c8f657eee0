"""Transfers between the memories of GPUs, by NCCL.

One tensor is all memory that ranks share. It is registered with NCCL as a symmetric window, and the group has the
zero-CTA policy: then NCCL moves the bytes of an all-to-all and an all-gather on copy engines, and takes no SM from the
kernels that run meanwhile. This needs the GPUs of one NVLink domain. Elsewhere NCCL's own kernels move the same bytes.
"""

import os
import sys

import torch
import torch.distributed as dist

from coda_torch import library


class GpuMover:
    def __init__(self, team, size):
        self.rank, self.ranks = team.rank, team.ranks
        self.device = torch.device("cuda", team.device)
        torch.cuda.set_device(self.device)
        options = dist.ProcessGroupNCCL.Options()
        options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
        options._timeout = team.timeout  # new_group() warns where it differs
        self.group = dist.new_group(backend="nccl", timeout=team.timeout, pg_options=options, device_id=self.device)
        self.bytes = self._window(size)
        torch.cuda.synchronize()  # libcoda's stream does not wait for PyTorch's, which has the zeros under way
        self.base = self.bytes.data_ptr()
        self.side = torch.cuda.Stream()
        self.streams, self.moves, self.under_way = {}, [], {}

    def _window(self, size):
        """Zeroed memory, registered where that is possible."""
        import torch.distributed._symmetric_memory as symmetric
        try:
            if os.environ.get("CODA_TORCH_WINDOW") == "0":
                raise RuntimeError("CODA_TORCH_WINDOW=0 says so")
            symmetric.set_backend("NCCL")
            dist.all_reduce(torch.zeros(1, device=self.device), group=self.group)  # makes NCCL's communicator
            with torch.cuda.use_mem_pool(symmetric.get_mem_pool(self.device)):
                memory = torch.zeros(size, dtype=torch.uint8, device=self.device)
            self.window = symmetric.rendezvous(memory, group=self.group.group_name)
            return memory
        except RuntimeError as error:
            if self.rank == 0:
                print(f"note: NCCL takes SMs for its transfers, since the memory of {size} bytes cannot be registered: "
                      f"{str(error).splitlines()[0]}", file=sys.stderr, flush=True)
            return torch.zeros(size, dtype=torch.uint8, device=self.device)

    def set_transfers(self, transfers):
        self.moves = [self._move(transfer) for transfer in transfers]

    def _move(self, moved):
        """A function that enqueues the transfer on the current stream; None where nothing is to be moved."""
        if moved.bytes == 0:
            return None
        whole = self.bytes[moved.target:moved.target + self.ranks * moved.bytes]
        if moved.how == library.SCATTER:
            parts = self.bytes[moved.source:moved.source + self.ranks * moved.bytes]
            return lambda: dist.all_to_all_single(whole, parts, group=self.group, async_op=True)
        own = whole[self.rank * moved.bytes:(self.rank + 1) * moved.bytes]
        return lambda: dist.all_gather_into_tensor(whole, own, group=self.group, async_op=True)

    def _stream(self, address):
        if address not in self.streams:
            self.streams[address] = torch.cuda.ExternalStream(address, device=self.device)
        return self.streams[address]

    def start(self, number, stream):
        move = self.moves[number]
        if move is None:
            return
        self.side.wait_stream(self._stream(stream))
        with torch.cuda.stream(self.side):
            self.under_way[number] = move()

    def finish(self, number, stream):
        work = self.under_way.pop(number, None)
        if work is None:
            return
        with torch.cuda.stream(self._stream(stream)):
            work.wait()
