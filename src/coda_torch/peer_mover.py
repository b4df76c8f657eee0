"""Transfers between the GPUs of one host, by copies: each rank fetches its parts from the memories of the others.

Each rank maps the others' memory (CUDA IPC). Copy engines move the bytes, and ranks wait for each other by words in GPU
memory that streams write and wait for, so no SM is taken from the kernels that run meanwhile. NCCL's all-to-all would
also copy a rank's own part. All transfers go through one stream, in the same order on every rank, so their number is the
word that ranks wait for.
"""

import ctypes

import torch

from coda_torch import library

FLAGS = 4096  # bytes at the end of a rank's memory: for each rank a word "its source is ready", then "it has fetched"
AT_LEAST, WITH_FENCE, LAZY_PEER_ACCESS, NO_TIMING = 0, 0, 1, 2


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle."""
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


class Driver:
    """Functions of libcuda, which raise RuntimeError."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        address, size, stream, event = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
        word, reference = ctypes.c_uint32, ctypes.POINTER
        self.allocate = self._bound("cuMemAlloc_v2", reference(address), size)
        self.free = self._bound("cuMemFree_v2", address)
        self.fill = self._bound("cuMemsetD8_v2", address, ctypes.c_ubyte, size)
        self.export = self._bound("cuIpcGetMemHandle", reference(IpcHandle), address)
        self.open = self._bound("cuIpcOpenMemHandle_v2", reference(address), IpcHandle, ctypes.c_uint)
        self.make_stream = self._bound("cuStreamCreate", reference(stream), ctypes.c_uint)
        self.make_event = self._bound("cuEventCreate", reference(event), ctypes.c_uint)
        self.record = self._bound("cuEventRecord", event, stream)
        self.wait_event = self._bound("cuStreamWaitEvent", stream, event, ctypes.c_uint)
        self.copy = self._bound("cuMemcpyDtoDAsync_v2", address, address, size, stream)
        self.write_word = self._bound("cuStreamWriteValue32_v2", stream, address, word, ctypes.c_uint)
        self.wait_word = self._bound("cuStreamWaitValue32_v2", stream, address, word, ctypes.c_uint)

    def _bound(self, name, *types):
        function = getattr(self.library, name)
        function.argtypes, function.restype = types, ctypes.c_int

        def call(*arguments):
            code = function(*arguments)
            if code != 0:
                text = ctypes.c_char_p()
                self.library.cuGetErrorName(code, ctypes.byref(text))
                raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")
        return call

    def made(self, function, kind, *arguments):
        """What a function writes where its first argument points."""
        result = kind()
        function(ctypes.byref(result), *arguments)
        return result.value


class PeerMover:
    """Raises RuntimeError on every rank where one of them cannot map another's memory."""

    def __init__(self, team, size):
        self.rank, self.ranks = team.rank, team.ranks
        torch.cuda.set_device(team.device)
        torch.zeros(1, device="cuda")  # makes the context, which driver calls take as they find it
        self.driver = driver = Driver()
        self.base = driver.made(driver.allocate, ctypes.c_uint64, size + FLAGS)
        self.flags = self.base + size
        driver.fill(self.base, 0, size + FLAGS)
        torch.cuda.synchronize()
        handle = IpcHandle()
        driver.export(ctypes.byref(handle), self.base)
        try:
            self.bases = self._mapped(team, team.share(bytes(handle.reserved)))
        except RuntimeError:
            driver.free(self.base)
            raise
        self.side = driver.made(driver.make_stream, ctypes.c_void_p, 1)  # 1: does not wait for the default stream
        self.behind = driver.made(driver.make_event, ctypes.c_void_p, NO_TIMING)
        self.size, self.transfers, self.arrivals, self.count = size, [], {}, 0

    def _mapped(self, team, handles):
        """The base of every rank's memory. All ranks succeed or fail."""
        bases, problem = [], ""
        for rank in range(self.ranks):
            try:
                bases.append(self.base if rank == self.rank else self.driver.made(
                    self.driver.open, ctypes.c_uint64, IpcHandle.from_buffer_copy(handles, 64 * rank),
                    LAZY_PEER_ACCESS))
            except RuntimeError as error:
                problem = problem or str(error)
        said = team.share(problem.encode()[:200].ljust(200))
        problems = [said[200 * rank:200 * (rank + 1)].strip().decode() for rank in range(self.ranks)]
        if any(problems):
            raise RuntimeError(next(filter(None, problems)))
        return bases

    def set_transfers(self, transfers):
        self.transfers = transfers
        self.arrivals = {number: self.driver.made(self.driver.make_event, ctypes.c_void_p, NO_TIMING)
                         for number, moved in enumerate(transfers) if moved.bytes > 0}

    def _word(self, of, kind, rank):
        """Where rank `of` has the word that `rank` writes: kind 0, its source is ready; 1, it has fetched."""
        return self.bases[of] + self.size + 4 * (kind * self.ranks + rank)

    def start(self, number, stream):
        moved, driver, side = self.transfers[number], self.driver, self.side
        if moved.bytes == 0:
            return
        self.count = (self.count + 1) & 0xFFFFFFFF
        others = [(self.rank + step) % self.ranks for step in range(1, self.ranks)]
        driver.record(self.behind, stream)
        driver.wait_event(side, self.behind, 0)
        for other in others:
            driver.write_word(side, self._word(other, 0, self.rank), self.count, WITH_FENCE)
        for other in others:
            target = moved.target + other * moved.bytes
            source = moved.source + self.rank * moved.bytes if moved.how == library.SCATTER else target
            driver.wait_word(side, self._word(self.rank, 0, other), self.count, AT_LEAST)
            driver.copy(self.base + target, self.bases[other] + source, moved.bytes, side)
            driver.write_word(side, self._word(other, 1, self.rank), self.count, WITH_FENCE)
        for other in others:
            driver.wait_word(side, self._word(self.rank, 1, other), self.count, AT_LEAST)
        driver.record(self.arrivals[number], side)

    def finish(self, number, stream):
        if number in self.arrivals:
            self.driver.wait_event(stream, self.arrivals[number], 0)
