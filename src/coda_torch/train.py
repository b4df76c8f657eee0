"""One rank of coda_train: torchrun --nproc-per-node 2 -m coda_torch.train --config llama1b.json ...

Without torchrun's environment it is coda_train with one rank.
"""

import ctypes
import os
import signal
import sys

from coda_torch import library

PR_SET_PDEATHSIG = 1


def stop_with(launcher):
    """The kernel sends this rank SIGTERM when its launcher dies: without a launcher nobody could stop the ranks."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != launcher:
        sys.exit("coda_torch: the launcher is gone")


def main():
    arguments = sys.argv[1:]
    if "RANK" not in os.environ:
        return library.main(arguments)
    # The next share() finds a lost rank and names it. NCCL's threads would end this process before that, without a name.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if "CODA_TORCH_LAUNCHER" in os.environ:
        stop_with(int(os.environ["CODA_TORCH_LAUNCHER"]))
    try:
        from coda_torch.process_team import ProcessTeam
    except ImportError as error:
        sys.exit(f"coda_torch: several ranks need PyTorch: pip install torch ({error})")
    team = ProcessTeam()
    code = library.main(arguments, team)
    if code in (library.DONE, library.INTERRUPTED) and not team.close():
        return library.FAILED  # another rank has said why
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Without a clean-up of NCCL, which can wait for a rank that is gone.
    os._exit(code)
