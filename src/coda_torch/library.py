"""libcoda in Python: the structs of coda.h, and a team of ranks whose functions are methods."""

import ctypes
import os
import sys

ABI = 1
HOST, GPU = 0, 1
SCATTER, GATHER = 0, 1
F64, F32, BF16 = 0, 1, 2
DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130  # exit codes of coda_main


class Transfer(ctypes.Structure):
    """coda_transfer."""
    _fields_ = [("how", ctypes.c_int32), ("source", ctypes.c_int64), ("target", ctypes.c_int64),
                ("bytes", ctypes.c_int64)]


class Shape(ctypes.Structure):
    """coda_shape."""
    _fields_ = [(name, ctypes.c_int64) for name in ("micro_batches", "batch", "seq_len", "vocab", "step")] + \
        [("where", ctypes.c_int32), ("tensors", ctypes.c_int32)]


class Segment(ctypes.Structure):
    """coda_segment."""
    _fields_ = [("base", ctypes.c_void_p), ("elements", ctypes.c_int64), ("dtype", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    """coda_tensor."""
    _fields_ = [("name", ctypes.c_char_p)] + \
        [(name, ctypes.c_int64) for name in ("rows", "cols", "element", "row_stride", "head_dim")] + \
        [("matrix", ctypes.c_int32)]


_POINTER, _INT32, _INT64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_FUNCTIONS = {
    "memory": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _INT32, _INT64, ctypes.POINTER(_POINTER)),
    "set_transfers": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.POINTER(Transfer), _INT32),
    "share": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _POINTER, _INT64, _POINTER),
    "start": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _INT32, _POINTER),
    "finish": ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _INT32, _POINTER),
    "leave": ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_char_p),
    "why": ctypes.CFUNCTYPE(_POINTER, _POINTER),
}


class _Team(ctypes.Structure):
    """coda_team."""
    _fields_ = [("abi", _INT32), ("rank", _INT32), ("ranks", _INT32), ("device", _INT32), ("threads", _INT32),
                ("context", _POINTER), *_FUNCTIONS.items()]


class Team:
    """A rank's way to the others, as coda.h describes it. Methods raise an exception where another rank is gone; its
    text is what the run says."""

    def __init__(self, rank, ranks, device=0, threads=0):
        self.rank, self.ranks, self.device, self.threads = rank, ranks, device, threads

    def memory(self, where, size):
        """The address of `size` zeroed bytes that the other ranks reach, aligned to 1024."""
        raise NotImplementedError

    def set_transfers(self, transfers):
        """A list of Transfer."""
        raise NotImplementedError

    def share(self, mine):
        """The bytes of all ranks, in their order."""
        raise NotImplementedError

    def start(self, transfer, stream):
        """Begins transfer number `transfer` behind what the CUDA stream has; stream None: on a CPU."""
        raise NotImplementedError

    def finish(self, transfer, stream):
        raise NotImplementedError

    def leave(self, why):
        """This rank's run has failed, and the others should hear why."""


def find():
    """The path of libcoda: CODA_LIBRARY's, or the one that was installed with this package."""
    chosen = os.environ.get("CODA_LIBRARY")
    if chosen:
        return chosen
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "lib", f"libcoda.so.{ABI}")
    if os.path.exists(installed):
        return installed
    sys.exit(f"coda_torch: {installed} is missing: install the package with 'pip install .' in the repository, or let "
             "CODA_LIBRARY name a libcoda.so of a build folder")


def load():
    library = ctypes.CDLL(find())
    library.coda_build.restype = library.coda_problem.restype = ctypes.c_char_p
    if library.coda_abi() != ABI:
        sys.exit(f"coda_torch: {find()} has ABI {library.coda_abi()}, and this package needs {ABI}")
    library.coda_main.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(_Team)]
    return library


def struct_of(team):
    """A coda_team whose functions call the team's methods. It must live as long as the call that it is given to."""
    said = ctypes.create_string_buffer(b"", 4096)

    def guarded(function):
        def call(*arguments):
            try:
                function(*arguments)
                return 0
            except BaseException as error:  # ctypes would print it, and the run would continue
                said.value = (str(error) or type(error).__name__).encode()[:4095]
                return 1
        return call

    def memory(_, where, size, base):
        base[0] = team.memory(where, size)

    def set_transfers(_, transfers, count):
        copies = [Transfer() for _ in range(count)]
        for copy, given in zip(copies, transfers[:count]):
            ctypes.pointer(copy)[0] = given
        team.set_transfers(copies)

    def share(_, mine, size, whole):
        ctypes.memmove(whole, team.share(ctypes.string_at(mine, size)), size * team.ranks)

    functions = {
        "memory": guarded(memory),
        "set_transfers": guarded(set_transfers),
        "share": guarded(share),
        "start": guarded(lambda _, transfer, stream: team.start(transfer, stream)),
        "finish": guarded(lambda _, transfer, stream: team.finish(transfer, stream)),
        "leave": guarded(lambda _, why: team.leave(why.decode(errors="replace"))),
        "why": lambda _: ctypes.addressof(said),
    }
    wrapped = {name: _FUNCTIONS[name](function) for name, function in functions.items()}
    return _Team(abi=ABI, rank=team.rank, ranks=team.ranks, device=team.device, threads=team.threads, **wrapped)


def words_of(arguments):
    """argv of C."""
    words = [b"coda_train", *(os.fsencode(argument) for argument in arguments)]
    return (ctypes.c_char_p * len(words))(*words)


def main(arguments, team=None):
    """coda_train with these flags, as a rank of the team. Returns the exit code."""
    words = words_of(arguments)
    struct = ctypes.byref(struct_of(team)) if team else None
    return load().coda_main(len(words), words, struct)
