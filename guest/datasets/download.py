"""A file of a web server, which may be slow, but not without end."""

from __future__ import annotations

import contextlib
import functools
import socket
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from guest.records.pace import Moved, paced

SILENT_S = 60.0


@contextlib.contextmanager
def opened(url: str) -> Iterator[tuple[HTTPResponse, Moved]]:
    """The answer, to be read by `read1`, and what to call with the number of bytes read. Raises OSError and
    HTTPException; TimeoutError where it does not keep the pace of `guest.records.pace`."""
    with contextlib.ExitStack() as ends:
        sockets: list[socket.socket] = []

        def connect(*arguments: Any, **options: Any) -> socket.socket:
            made = socket.create_connection(*arguments, **options)
            sockets.append(ends.enter_context(made.dup()))  # by which also a handshake can be cut
            return made

        def cut() -> None:
            for each in sockets:
                with contextlib.suppress(OSError):  # it has ended
                    each.shutdown(socket.SHUT_RDWR)

        opener = urllib.request.build_opener(_Http(connect), _Https(connect))
        request = urllib.request.Request(url, headers={"User-Agent": "vbstudy"})  # noqa: S310  (callers check)
        with paced(cut, SILENT_S) as moved, opener.open(request, timeout=SILENT_S) as answer:
            yield answer, moved


class _Connecting(urllib.request.AbstractHTTPHandler):
    def __init__(self, connect: Any) -> None:
        super().__init__()
        self._connect = connect

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> HTTPResponse:
        return super().do_open(functools.partial(self._connection, http_class), req, **options)

    def _connection(self, http_class: Any, host: str, **options: Any) -> HTTPConnection:
        connection: HTTPConnection = http_class(host, **options)
        connection._create_connection = self._connect  # type: ignore[attr-defined]
        return connection


class _Http(_Connecting, urllib.request.HTTPHandler):
    pass


class _Https(_Connecting, urllib.request.HTTPSHandler):
    pass
