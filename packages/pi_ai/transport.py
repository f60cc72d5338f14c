"""One POST on urllib: a deadline for all of it, a cap on the answer, a connection kept per thread.

HTTP is urllib.request's and http.client's; ours are the rules on top. urllib closes each connection, so
its handler is given connections that are kept; http.client waits anew for every byte, so it is given a
file that knows the deadline. Redirects are not followed, since no handler for them is installed. The name
lookup alone can outlast the deadline: it cannot be interrupted.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import io
import ipaddress
import itertools
import os
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import Any
from urllib.error import URLError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import AbstractHTTPHandler, OpenerDirector, Request, getproxies, proxy_bypass

from .errors import MiniPiError, ModelRequestError, ProtocolError
from .reading import refusal, strict_json

_LOG = "请查看模型服务器的日志后重试。"
_KEY, _LATER = "请检查 QWEN_API_KEY。", "请稍后再试，或调大 timeout。"
_ADVICE = {401: _KEY, 403: _KEY, 404: "请检查 QWEN_BASE_URL 和模型名。", 429: _LATER, 503: _LATER}
_START = "server 启动了吗？请启动它，或加上 --local-qwen 使用本地模型，或把 QWEN_BASE_URL 指向已有的服务器。"
_FAILURES = (OSError, EOFError, OverflowError, ValueError, HTTPException)
_CAUSES: tuple[tuple[Any, str, str], ...] = (
    (TimeoutError, "超时，没有收完响应", "请检查服务器是否卡住，或调大 timeout。"),
    (ConnectionRefusedError, "无法连接", _START),
    (ConnectionError, "没有收到响应，连接就断开了", _LOG),
    (ssl.SSLCertVerificationError, "的 TLS 证书不可信", "请换用可信的证书，或用 SSL_CERT_FILE 指定它的 CA。"),
    (OSError, "网络出错", "请检查 QWEN_BASE_URL（主机、端口、http 还是 https）、代理设置和网络。"),
    ((EOFError, IncompleteRead), "的响应不完整", _LOG),
    (OverflowError, "的响应太大", "请检查服务器，或调大 max_response_bytes。"),
    (Exception, "收到的不是 HTTP 响应，或它的压缩、编码有误", "请检查 QWEN_BASE_URL 的端口，以及代理。"),
)


class Transport:
    """POSTs to base_url's /v1/responses. Settings and errors are those of ResponsesClient."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float, max_bytes: int) -> None:
        self._url = _endpoint(base_url)
        if api_key and not re.fullmatch(r"[!-~]+", api_key):
            raise MiniPiError("api_key 只能有可见的 ASCII 字符，不能有空格和换行。请检查 QWEN_API_KEY。")
        if not 0 < timeout <= 1e9:
            raise MiniPiError(f"timeout 必须是正的秒数，收到 {timeout!r}。请改正后重试。")
        self.request = f"POST {self._url.geturl()}"
        self._key, self._timeout, self._max_bytes = api_key, timeout, max_bytes
        self._headers = {"Host": self._url.netloc, "User-Agent": "mini_pi"}
        self._headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._idle = threading.local()  # a connection in use is out of reach: broken off, it is dropped

    def error(
        self, what: str, advice: str, body: object = None, status: int | None = None
    ) -> ModelRequestError:
        """An error that says what was asked of whom, what the server said (body), and what to do."""
        if body is None:
            return ModelRequestError(f"{self.request} {what}。{advice}", status)
        return refusal(f"{self.request} {what}", body, advice, status, self._key)

    def post(self, body: bytearray) -> Generator[bytes]:
        """Yield the answer's body in UTF-8 as it comes. Leaving early, by close(), drops the connection."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            connection, answer = self._try(self._open, body, deadline)
            try:
                pieces = answer.pieces(self._max_bytes)
                while 200 <= answer.status < 300:
                    piece = self._try(next, pieces, None)
                    if piece is None:
                        return
                    yield piece
                refused = self._refusal(answer, pieces)
            finally:
                answer.close()
                if answer.whole and not answer.will_close and not answer.wire.stray:
                    self._idle.connection = connection
                else:
                    connection.close()
            wait = max(_retry_after(answer.headers.get("retry-after", "")), min(2**attempt / 2, 8))
            if answer.status not in (429, 503) or wait >= deadline - time.monotonic():
                raise refused
            time.sleep(wait)

    def _open(self, body: bytearray, deadline: float) -> tuple[_Connection, _Answer]:
        request = _Post(self._url.geturl(), body, self._headers)
        request.take, request.deadline = self._take, deadline
        if self._proxy:
            request.set_proxy(self._proxy.netloc.rpartition("@")[2], "http")
            if self._proxy.username is not None:
                login = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}".encode()
                request.add_header("Proxy-Authorization", f"Basic {base64.b64encode(login).decode()}")
        kept: _Connection | None = getattr(self._idle, "connection", None)
        try:
            answer = _OPENER.open(request)
            return request.connection, answer
        except OSError:
            if kept is None or kept.wire.answered:
                raise
        return self._open(body, deadline)  # once: a kept connection died before the first byte of an answer

    def _take(self, host: str) -> _Connection:
        """This thread's idle connection if it is still good, else a new one to host, a proxy or the server."""
        kept: _Connection | None = getattr(self._idle, "connection", None)
        self._idle.connection = None
        if kept is not None and kept.is_quiet():
            return kept
        name = self._url.hostname or ""
        if self._proxy:
            return _Connection(host, None, name, self._tls)
        return _Connection(name, self._url.port or (443 if self._tls else 80), name, self._tls)

    @cached_property
    def _proxy(self) -> SplitResult | None:
        return None if _is_this_machine(self._url.hostname or "") else _proxy(self._url)

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        """One for all connections: making it takes longer than a turn."""
        return ssl.create_default_context() if self._url.scheme == "https" else None

    def _refusal(self, answer: _Answer, pieces: Iterator[bytes]) -> ModelRequestError:
        text = b""
        with contextlib.suppress(*_FAILURES):  # the status is known in any case
            while len(text) < 65536 and (piece := next(pieces, None)) is not None:
                text += piece
        body: object = text.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, ProtocolError):
            body = strict_json(str(body))
        advice = _ADVICE.get(answer.status, _LOG)
        if 300 <= answer.status < 400:
            advice = "不跟随重定向，请把 QWEN_BASE_URL 改成最终的地址。"
            body = answer.headers.get("location", body)  # what the server says, so the key is taken out
        return self.error(f"返回 HTTP {answer.status}", advice, body, answer.status)

    def _try(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """step(*arguments), with what the standard library raises turned into an error that helps."""
        try:
            return step(*arguments)
        except _FAILURES as failure:
            error = self._failed(failure)
        raise error  # here, so that no frame with a view of the buffer hangs on it

    def _failed(self, failure: Exception) -> ModelRequestError:
        if isinstance(failure, URLError) and isinstance(failure.reason, Exception):
            failure = failure.reason
        what, advice = next((what, advice) for kind, what, advice in _CAUSES if isinstance(failure, kind))
        if isinstance(failure, TimeoutError):
            what += f"（timeout={self._timeout:g} 秒）"
        said = getattr(failure, "strerror", None) or (str(failure) if type(failure) is OSError else None)
        return self.error(what, advice, said)


class _Post(Request):
    """A request that brings its own connection, from take(host)."""

    take: Callable[[str], _Connection]
    deadline: float
    connection: _Connection

    def connect(self, host: str, **_: Any) -> _Connection:
        self.connection = self.take(host)
        self.connection.deadline = self.deadline
        return self.connection


class _Handler(AbstractHTTPHandler):
    """urllib's handler for http and https, on the connections that requests bring."""

    def http_open(self, request: _Post) -> HTTPResponse:
        return self.do_open(request.connect, request)

    https_open = http_open
    http_request = https_request = AbstractHTTPHandler.do_request_


_OPENER = OpenerDirector()
_OPENER.add_handler(_Handler())


class _Connection(HTTPConnection):
    """http.client's connection, kept: its every wait ends with the deadline of the exchange that it is in.

    server_name: the server's, also behind a proxy; tls: None for plain HTTP.
    """

    def __init__(
        self, host: str, port: int | None, server_name: str | None, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__(host, port)
        self.deadline, self.wire = 0.0, _Wire(None, 0)
        self._server_name, self._tls, self._process = server_name, tls, os.getpid()
        self._resting: socket.socket | None = None

    def response_class(self, sock: Any, *arguments: Any, **options: Any) -> _Answer:  # type: ignore[override]
        """What http.client reads each answer with, a proxy's to CONNECT too."""
        self.wire = _Wire(sock, self.deadline)
        return _Answer(self.wire, *arguments, **options)

    def set_tunnel(self, host: str, port: int | None = None, headers: Any = None) -> None:
        """With the port of https, and with the Host header that Python 3.11 leaves out."""
        where = host if re.search(r":\d+$", host) else f"{host.rstrip(':')}:443"
        super().set_tunnel(
            where.rpartition(":")[0], int(where.rpartition(":")[2]), {"Host": where, **headers}
        )

    def connect(self) -> None:
        """Try each address of the name; each gets its share of the time that is left."""
        name = self.host
        found = socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM)
        numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
        for left in range(len(found), 0, -1):
            self.host = socket.getnameinfo(found[-left][4], numeric)[0]
            self.timeout = _left(self.deadline) / left
            try:
                super().connect()
                break
            except OSError:
                self.close()
                if left == 1:
                    raise
        self.host = name
        if self.wire.stray:
            raise OSError(0, "代理在 CONNECT 的回答后面多发了内容")  # nobody may answer for the server
        if self._tls:
            self.sock.settimeout(_left(self.deadline))
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
        """Without the `Connection: close` that urllib asks for."""
        self.sock, self._resting = self._resting, None
        headers.pop("Connection")
        super().request(method, url, body, headers, **options)

    def send(self, data: Any) -> None:
        """Send all of data, which is a buffer, or what the peer takes of it: its answer may say why."""
        if self.sock is None:
            self.connect()
        with memoryview(data) as whole:
            sent = 0
            while sent < len(whole):
                self.sock.settimeout(_left(self.deadline))
                with whole[sent:] as rest:  # released, or the buffer could not grow while an error is kept
                    try:
                        sent += self.sock.send(rest)
                    except TimeoutError:
                        raise
                    except OSError:
                        return  # without an answer, reading it fails too

    def getresponse(self) -> _Answer:
        """Out of the reach of urllib, which closes the socket of a connection that has answered."""
        answer = super().getresponse()
        self._resting, self.sock = self.sock, None
        return answer  # type: ignore[return-value]

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
        super().close()
        if self._resting is not None:
            self._resting.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # when it could not be made
            self.close()


class _Wire(io.RawIOBase):
    """The socket as http.client reads one answer from it. stray: more had come than belonged to the answer."""

    def __init__(self, sock: socket.socket | None, deadline: float) -> None:
        self._sock: Any = sock
        self._file: Any = sock and sock.makefile("rb", buffering=0)
        self.deadline = deadline
        self.answered = self.stray = self.is_read = False
        self.in_head = True

    def makefile(self, _: str) -> _Buffer:
        return _Buffer(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.is_read:
            return None
        self._sock.settimeout(_left(self.deadline))
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
        if self._file is not None:
            self._file.close()
        super().close()


class _Buffer(io.BufferedReader):
    """Notices, before it is thrown away, whether there is something in it."""

    def __init__(self, wire: _Wire) -> None:
        super().__init__(wire, 65536)
        self._wire = wire

    def close(self) -> None:
        if not self.closed:
            self._wire.is_read = True
            self._wire.stray = bool(self.peek(1))
        super().close()


class _Answer(HTTPResponse):
    """http.client's response; its body comes in pieces, `whole` once the end was reached."""

    def __init__(self, wire: _Wire, *arguments: Any, **options: Any) -> None:
        super().__init__(wire, *arguments, **options)  # type: ignore[arg-type]
        self.wire, self.whole = wire, False

    def begin(self) -> None:
        """Read the head. Raises ValueError for one that leaves open where the body ends."""
        super().begin()
        while 102 <= self.status < 200:  # not yet the answer; http.client knows only 100
            self.headers = None  # type: ignore[assignment]
            super().begin()
        self.wire.in_head = False
        lengths = set(self.headers.get_all("content-length", ["0"]))
        coding = self.headers.get("transfer-encoding", "identity").lower()
        if self.status == 101 or self.headers.defects or (coding != "identity" and not self.chunked):
            raise ValueError
        if not self.chunked and (len(lengths) > 1 or not re.fullmatch(r"[0-9]+", lengths.pop().strip())):
            raise ValueError

    def pieces(self, limit: int) -> Iterator[bytes]:
        """The body as it comes: decompressed, in UTF-8, within the limit, its end checked."""
        pieces = _capped(self._received(), limit)
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            pieces = _capped(_inflated(pieces), limit)
        elif encoding not in ("identity", ""):
            raise ValueError
        charset = re.search(r"charset=[\"']?([\w-]+)", self.headers.get("content-type", ""), re.IGNORECASE)
        if charset and charset[1].lower() != "utf-8":
            with contextlib.suppress(LookupError):  # an unknown charset: JSON is UTF-8
                b" ".decode(charset[1], "ignore")
                pieces = (text.encode() for text in codecs.iterdecode(pieces, charset[1]))
        yield from pieces
        self.whole = True

    def _received(self) -> Iterator[bytes]:
        while piece := self.read1(65536):
            yield piece
        if self.length:
            raise EOFError


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """gzip or zlib undone in small steps, so that a bomb is noticed before it fills the memory."""
    inflater = zlib.decompressobj(47)
    try:
        for piece in pieces:
            while piece and (not inflater.eof or piece.startswith(b"\x1f")):
                inflater = zlib.decompressobj(47) if inflater.eof else inflater  # gzip in several members
                yield inflater.decompress(piece, 65536)
                piece = inflater.unconsumed_tail or inflater.unused_data
        yield inflater.flush()
    except zlib.error:
        raise ValueError from None
    if not inflater.eof:
        raise EOFError


def _capped(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for piece in pieces:
        limit -= len(piece)
        if limit < 0:
            raise OverflowError
        yield piece


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _retry_after(value: str) -> float:
    """Seconds that a Retry-After header asks for, as number or date; 0 for nonsense."""
    if re.fullmatch(r"[0-9]*(\.[0-9]+)?", value):
        return float(value or 0)
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0


def _endpoint(base_url: str) -> SplitResult:
    """Where to post to. The error shows no URL: it may hold a password."""
    try:
        parts = urlsplit(base_url)
        valid = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        valid = False
    if not valid or re.search(r"[^!-~]|[@?#]", base_url):
        raise MiniPiError(
            "base_url 应该像 http://127.0.0.1:8021 或 https://主机/v1：以 http:// 或 https:// 开头，"
            "只有可见的 ASCII 字符，不带用户名、密码、? 和 #。请检查 QWEN_BASE_URL。"
        )
    return parts._replace(path=re.sub(r"(/+v1)?/*$", "", parts.path) + "/v1/responses")


def _is_this_machine(host: str) -> bool:
    """Whether a URL's host, however spelled, is this machine: a loopback address, or "any address"."""
    name = host.rstrip(".")
    if re.fullmatch(r"(.+\.)?localhost(\.localdomain)?|ip6-(localhost|loopback)", name):
        return True
    address = _address(name)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that host spells in any way that the resolver takes (0x7f.1); None for a name."""
    with contextlib.suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        address = ipaddress.IPv6Address(host)
        return address.ipv4_mapped or address
    return None


def _proxy(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for url. Raises OSError for one that is no plain HTTP proxy:
    urllib would speak to an https:// one in plain text."""
    named = getproxies().get(url.scheme)
    if not named or proxy_bypass(url.netloc) or _in_no_proxy(_address((url.hostname or "").rstrip("."))):
        return None
    with contextlib.suppress(ValueError):
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        if proxy.scheme == "http" and proxy.hostname and proxy.port != 0:
            return proxy
    raise OSError(0, "代理只能是 http://主机:端口")


def _in_no_proxy(address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    """Whether no_proxy names the address or a range that it is in, which proxy_bypass does not know."""
    for entry in re.split(r"[,\s]+", getproxies().get("no", "")):
        with contextlib.suppress(ValueError):
            if address and address in ipaddress.ip_network(entry.strip("[]"), strict=False):
                return True
    return False
