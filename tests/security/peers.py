"""Peers that are not what they are taken for."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def listening(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """The port of something on the loopback that answers each connection in a thread of its own. The event is
    set at the end."""
    ends, answering = threading.Event(), []

    def answered(connection):
        with connection, contextlib.suppress(OSError):
            answer(connection, ends)

    def serve(server):
        while not ends.is_set():
            with contextlib.suppress(OSError):
                answering.append(threading.Thread(target=answered, args=(server.accept()[0],)))
                answering[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ends.set()
            for each in (thread, *answering):
                each.join(600)
