"""What the ranks of one machine share: a TCP port for the first one's store, and the cores."""

import contextlib
import os
import socket


@contextlib.contextmanager
def held_port():
    """The port is given to nobody else: the socket stays bound to it until the ranks have ended. It does not listen, and
    both it and the store's socket allow the reuse of their address, so that the store's can be bound to the same port."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def cores_of_a_rank(local_ranks):
    return max(1, len(os.sched_getaffinity(0)) // local_ranks)
