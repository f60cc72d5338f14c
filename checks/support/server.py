"""A strict scripted Responses server over a real socket on 127.0.0.1, for every check that needs HTTP."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from checks.support.harness import JsonObject


@dataclass
class Request:
    """One request as it came. json: the parsed body, None where it is no JSON."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # which connection it came in on, counted from 1
    json: Any = None


@dataclass
class Reply:
    """An answer with a status; a body that is no str or bytes is written as JSON. None: no such header."""

    status: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Any = b""

    def wire(self) -> bytes:
        body, kind = self.body, "text/plain; charset=utf-8"
        if not isinstance(body, str | bytes):
            body, kind = json.dumps(body), "application/json"
        body = body.encode() if isinstance(body, str) else body
        headers: dict[str, str | None] = {"Content-Type": kind, "Content-Length": str(len(body))}
        head = "".join(f"{k}: {v}\r\n" for k, v in {**headers, **self.headers}.items() if v is not None)
        return f"HTTP/1.1 {self.status} Scripted\r\n{head}\r\n".encode() + body


class Raw:
    """Exact bytes on the wire; between them, a number is a pause in seconds and a function is called.

    keep: leave the connection open afterwards, else it is closed.
    """

    def __init__(self, *parts: bytes | float | Callable[[], object], keep: bool = False) -> None:
        self.parts, self.keep = parts, keep


Answer = JsonObject | Reply | Raw
Scripted = Answer | Callable[[Request], Answer]


class ScriptedServer:
    """Plays each reply once, in order; `url` is its base URL, `requests` what it was sent.

    Leaving the `with` block raises AssertionError when it was asked once too often (the client got a
    500 then), or, unless another error is on its way, once too seldom. With `forever` it plays the
    last reply again and again. keep_alive: seconds that an idle connection is kept, 0 for closing each.
    tls: a server-side context; `url` then begins with https.
    """

    def __init__(
        self,
        *replies: Scripted,
        forever: bool = False,
        keep_alive: float = 30,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.replies, self.forever, self.keep_alive = replies, forever, keep_alive
        self.requests: list[Request] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._server = _Server(self, host, tls)
        shown = f"[{host}]" if ":" in host else host
        self.port: int = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://{shown}:{self.port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.close_all()
        asked, scripted = len(self.requests), len(self.replies)
        too_many, too_few = asked > scripted and not self.forever, asked < scripted and kind is None
        if too_many or too_few:
            raise AssertionError(f"asked {asked} times, scripted {scripted}")

    def play(self, request: Request, handler: _Handler) -> None:
        with self._lock:
            self.requests.append(request)
            index = len(self.requests) - 1
        if self.forever:
            index = min(index, len(self.replies) - 1)
        reply: Scripted = Reply(500, body={"error": {"message": "not scripted"}})
        if index < len(self.replies):
            reply = self.replies[index]
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, dict):
            reply = Reply(200, body=reply)
        parts = (reply.wire(),) if isinstance(reply, Reply) else reply.parts
        for part in parts:
            if isinstance(part, bytes):
                handler.wfile.write(part)
            elif callable(part):
                part()
            elif self._stop.wait(part):
                break
        handler.close_connection = not (reply.keep if isinstance(reply, Raw) else self.keep_alive > 0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, script: ScriptedServer, host: str, tls: ssl.SSLContext | None) -> None:
        import socket

        self.script, self.tls = script, tls
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.open: set[Any] = set()
        super().__init__((host, 0), _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # In the connection's own thread, so that a handshake holds nobody up.
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        self.open.add(request)
        _Handler(request, client_address, self)
        self.open.discard(request)
        with contextlib.suppress(OSError):
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some checks are about."""

    def close_all(self) -> None:
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(2)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.script.keep_alive or None)
        with self.server.script._lock:
            self.server.script.connections += 1
            self.number = self.server.script.connections

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        parsed = None
        with contextlib.suppress(ValueError):
            parsed = json.loads(body)
        request = Request(self.command, self.path, headers, body, self.number, parsed)
        self.server.script.play(request, self)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Quiet: what was asked is in `requests`."""
