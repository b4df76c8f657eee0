"""Times of PyTorch calls."""

from __future__ import annotations

import time

import torch


def timed(call, count: int) -> float:
    """Milliseconds per call, over `count` calls without pauses: by CUDA events on a GPU, else by the host's clock."""
    if not torch.cuda.is_available():
        start = time.perf_counter()
        for _ in range(count):
            call()
        return 1000 * (time.perf_counter() - start) / count
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count
