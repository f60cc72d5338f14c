"""urllib's connections, made to last: kept from request to request, and held to one deadline.

HTTP is http.client's, and urllib.request drives it. But urllib closes each connection, so the handler here
takes the one that a request brings, and http.client waits anew for every byte, so it reads from a file that
knows the deadline. Redirects are not followed, since no handler for them is installed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.request import AbstractHTTPHandler, OpenerDirector, Request

_TOGETHER = 65536  # a head and a body up to this size leave in one packet
STREAM_FACTOR = 30  # a stream may take this many times the seconds that it may be silent for


class Deadline:
    """Ends `seconds` from now; that of a stream only bounds each silence by them, and all by many times them."""

    def __init__(self, seconds: float, *, stream: bool = False) -> None:
        self.seconds = self.silence = seconds
        self.stream = stream
        self._end = time.monotonic() + (seconds * STREAM_FACTOR if stream else seconds)

    def left(self) -> float:
        """Seconds until the end, not more than 0 once it has passed."""
        return self._end - time.monotonic()

    def wait(self) -> float:
        """Seconds that one wait may take. Raises TimeoutError when none are left."""
        left = self.left()
        if left <= 0:
            raise TimeoutError
        return min(left, self.silence)


class Post(Request):
    """A request that brings its own connection: take(host) gives one to host, a proxy or the server."""

    take: Callable[[str], Connection]
    deadline: Deadline
    connection: Connection

    def connect(self, host: str, **_: Any) -> Connection:
        """What urllib calls for a connection."""
        self.connection = self.take(host)
        self.connection.deadline = self.deadline
        return self.connection


class _Handler(AbstractHTTPHandler):
    def http_open(self, request: Post) -> HTTPResponse:
        return self.do_open(request.connect, request)

    https_open = http_open
    http_request = https_request = AbstractHTTPHandler.do_request_


OPENER = OpenerDirector()
OPENER.add_handler(_Handler())


class Connection(HTTPConnection):
    """http.client's connection, kept: its every wait ends with the deadline of the exchange that it is in.

    server_name: the server's, also behind a proxy. tls: None for plain HTTP.
    """

    def __init__(self, host: str, port: int | None, server_name: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self.deadline, self.wire = Deadline(0), Wire(None, Deadline(0))
        self._server_name, self._tls, self._process = server_name, tls, os.getpid()
        self._resting: socket.socket | None = None
        self._unsent = b""

    def response_class(self, sock: Any, *arguments: Any, **options: Any) -> Answer:  # type: ignore[override]
        """What http.client reads each answer with, a proxy's to CONNECT too."""
        self._send_all(self._unsent)
        self._unsent = b""
        self.wire = Wire(sock, self.deadline)
        return Answer(self.wire, *arguments, **options)

    def set_tunnel(self, host: str, port: int | None = None, headers: Any = None) -> None:
        """With the port of https, and with the Host header that Python 3.11 leaves out."""
        where = host if re.search(r":\d+$", host) else f"{host.rstrip(':')}:443"
        name, _, digits = where.rpartition(":")
        super().set_tunnel(name, int(digits), {"Host": where, **(headers or {})})

    def connect(self) -> None:
        """Try each address of the name; each gets its share of the time that is left."""
        name = self.host
        found = socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM)
        numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
        for left in range(len(found), 0, -1):
            self.host = socket.getnameinfo(found[-left][4], numeric)[0]
            self.timeout = self.deadline.wait() / left
            try:
                super().connect()
                break
            except OSError:
                self.close()
                if left == 1:
                    raise
        self.host = name
        if self.wire.stray:
            raise OSError(0, "代理在 CONNECT 的回答后面多发了内容")  # it may not answer for the server
        if self._tls:
            self.sock.settimeout(self.deadline.wait())
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        """Without the `Connection: close` that urllib asks for."""
        self.sock, self._resting, self._unsent = self._resting, None, b""
        del headers["Connection"]
        super().request(method, url, body, headers, **options)

    def send(self, data: Any) -> None:
        """Send data, or leave it to the reading of the answer, if it is so little that more may follow."""
        if self.sock is None:
            self.connect()
        if len(self._unsent) + len(data) <= _TOGETHER:
            self._unsent += data
        else:
            self._send_all(self._unsent)
            self._unsent = b""
            self._send_all(data)

    def _send_all(self, data: bytes | bytearray) -> None:
        """Send data, or what the peer takes of it: its answer, which is read in any case, may say why."""
        sent = 0
        with memoryview(data) as whole:
            while sent < len(whole):
                self.sock.settimeout(self.deadline.wait())
                with whole[sent:] as rest:  # released, or the buffer could not grow while an error is kept
                    try:
                        sent += self.sock.send(rest)
                    except TimeoutError:
                        raise
                    except OSError:
                        return

    def getresponse(self) -> HTTPResponse:
        """Out of the reach of urllib, which closes the socket of a connection that has answered."""
        answer = super().getresponse()
        self._resting, self.sock = self.sock, None
        return answer

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, not even its end; False in a forked process."""
        if self._resting is None or self._process != os.getpid():
            return False
        try:
            self._resting.settimeout(0)
            socket.socket.recv(self._resting, 1, socket.MSG_PEEK)  # SSLSocket's own takes no flags
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Close it, also when it is kept."""
        super().close()
        if self._resting is not None:
            self._resting.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # when it could not be made
            self.close()


class Wire(io.RawIOBase):
    """The socket, as http.client reads one answer from it.

    answered: at least one byte has come. stray: more had come than belonged to the answer.
    """

    def __init__(self, sock: socket.socket | None, deadline: Deadline) -> None:
        self._sock: Any = sock
        self._file: Any = sock and sock.makefile("rb", buffering=0)
        self.deadline = deadline
        self.answered = self.stray = self.is_over = False
        self.in_head = True

    def makefile(self, _: str) -> _Buffer:
        """What http.client asks a socket for."""
        return _Buffer(self)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read within the deadline. Raises ConnectionError for an answer that never began, EOFError for
        one that breaks off in its head, or by a reset."""
        if self.is_over:
            return None
        self._sock.settimeout(self.deadline.wait())
        try:
            count: int = self._file.readinto(buffer)
        except ConnectionError:
            if not self.answered:
                raise
            raise EOFError from None
        if count == 0 and self.in_head:
            raise EOFError if self.answered else ConnectionResetError
        self.answered = True
        return count

    def close(self) -> None:
        """Let go of the socket, which stays open while the connection is kept."""
        if self._file is not None:
            self._file.close()
        super().close()


class _Buffer(io.BufferedReader):
    """Notices, before it is thrown away, whether there is something left in it."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, 65536)
        self._wire = wire

    def close(self) -> None:
        if not self.closed:
            self._wire.is_over = True
            self._wire.stray = bool(self.peek(1))
        super().close()


class Answer(HTTPResponse):
    """http.client's response, for answers whose end is beyond doubt."""

    def __init__(self, wire: Wire, *arguments: Any, **options: Any) -> None:
        super().__init__(wire, *arguments, **options)  # type: ignore[arg-type]
        self.wire = wire

    def begin(self) -> None:
        """Read the head. Raises ValueError for one that leaves open where the body ends."""
        super().begin()
        while 102 <= self.status < 200:  # not yet the answer; http.client knows only 100
            self.headers = None  # type: ignore[assignment]
            super().begin()
        self.wire.in_head = False
        lengths = set(self.headers.get_all("content-length", ["0"]))
        coding = ",".join(self.headers.get_all("transfer-encoding", ["identity"])).lower()
        if self.status == 101 or self.headers.defects or coding not in ("identity", "chunked"):
            raise ValueError
        if not self.chunked and (len(lengths) > 1 or not re.fullmatch(r"[0-9]+", lengths.pop().strip())):
            raise ValueError

    def received(self) -> Iterator[bytes]:
        """The body as it comes. Raises EOFError when it is cut short."""
        while piece := self.read1(65536):
            yield piece
        if self.length:
            raise EOFError
