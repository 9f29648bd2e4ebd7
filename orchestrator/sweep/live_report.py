"""Serves the report while the sweep runs: on this machine's loopback alone, to whoever has the address.

Other programs of this machine can reach a port of the loopback, web pages among them: requests must name the
host as its address (against pages that make their own name lead here) and a path that nobody can guess."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.files import temporary_folder
from orchestrator.sweep.watch import Watched, Watcher

HOST = "127.0.0.1"
LOOK_S = 1.0
SHARE = 0.2  # of the time is spent on building at most: the cores are the runs'
LEAST_BETWEEN_S = 3.0
REQUEST_TIMEOUT_S = 10
AT_ONCE = 16  # requests
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is served at a moment: the page, its version, and the files that it links to."""

    page: bytes
    version: str
    files: dict[str, Path]


class Server(ThreadingHTTPServer):
    """One page, and what belongs to it."""

    request_queue_size = 4 * AT_ONCE

    def __init__(self, port: int) -> None:
        self.site = Site(page=b"", version="", files={})
        self.token = secrets.token_urlsafe(16)
        self._open: dict[Any, float] = {}  # requests, the oldest first, and when they came
        self._changing = threading.Lock()
        super().__init__((HOST, port), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            if len(self._open) >= AT_ONCE:  # an answer takes milliseconds: the oldest is given up
                self._give_up(next(iter(self._open)))
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changing:
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """Gives up requests that take too long, however alive they keep their connection."""
        with self._changing:
            late = time.monotonic() - REQUEST_TIMEOUT_S
            for request in [each for each, began in self._open.items() if began < late]:
                self._give_up(request)

    def _give_up(self, request: socket.socket) -> None:
        del self._open[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that hung up is not reported."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = REQUEST_TIMEOUT_S

    def version_string(self) -> str:
        return "vbstudy"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not logged."""

    def do_GET(self) -> None:
        status, kind, body = self._found()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _found(self) -> tuple[HTTPStatus, str, bytes]:
        text = "text/plain; charset=utf-8"
        hosts = {f"{name}:{self.server.port}" for name in (HOST, "localhost")}
        if len(self.headers.get_all("Host", [])) != 1:
            return HTTPStatus.BAD_REQUEST, text, b"one Host header is needed\n"
        if self.headers["Host"] not in hosts:
            return HTTPStatus.FORBIDDEN, text, b"this is served for this machine alone\n"
        _, token, name = [*self.path.partition("?")[0].split("/", 2), "", ""][:3]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return HTTPStatus.NOT_FOUND, text, b"there is nothing here\n"
        site = self.server.site
        if name == "":
            return HTTPStatus.OK, TYPES[".html"], site.page
        if name == "version":
            return HTTPStatus.OK, text, site.version.encode()
        file = site.files.get(name)
        if file is not None:
            with contextlib.suppress(OSError):  # the next report takes its place just now
                return HTTPStatus.OK, TYPES[file.suffix], file.read_bytes()
        return HTTPStatus.NOT_FOUND, text, b"there is nothing here\n"


@contextlib.contextmanager
def serving(port: int) -> Iterator[Server]:
    """A server in a thread of its own. Raises UsageError where the port is taken."""
    try:
        server = Server(port)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; without --port a free one is taken") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="report", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def keep_building(server: Server, watcher: Watcher, build: Callable[[Watched, str, Path], bytes]) -> None:
    """Makes the page again whenever runs were added or the sweep began or ended, until Ctrl-C.
    `build(moment, version, folder)` returns it, and writes its files into the folder."""
    shown: object = None
    version = 0
    with temporary_folder("vbstudy-report-") as temporary:
        while True:
            frame = watcher.look()
            far = frame.alive, [(each.set_id, each.done, each.planned) for each in frame.sets]
            if far == shown:
                time.sleep(LOOK_S)
                continue
            began = time.monotonic()
            version += 1
            folder = temporary / "report"
            page = build(frame, str(version), folder)
            files = {path.relative_to(folder).as_posix(): path for path in folder.glob("*/*.*")}
            files |= {path.name: path for path in folder.glob("*.json")}
            kept = {name: path for name, path in files.items() if path.suffix in TYPES}
            server.site = Site(page=page, version=str(version), files=kept)
            shown = far
            took_s = time.monotonic() - began
            time.sleep(max(LEAST_BETWEEN_S, took_s * (1 / SHARE - 1)))
