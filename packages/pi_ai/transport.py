"""One POST: one deadline over all of it, a cap on the answer, a connection kept per thread.

urllib finds the environment's proxies, but closes its connection after each answer; the handler below
keeps it. Redirects are not followed, since no handler for them is installed.
"""

from __future__ import annotations

import codecs
import contextlib
import email.utils
import http.client
import io
import itertools
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from typing import Any, cast

from .errors import MiniPiError, ModelRequestError, ProtocolError
from .reading import explain, strict_json


class _TooLargeError(OSError):
    pass


_CHECK_KEY = "请检查 QWEN_API_KEY。"
_LATER = "请稍后再试，或调大 timeout。"
_ADVICE = {
    401: _CHECK_KEY,
    403: _CHECK_KEY,
    404: "请检查 QWEN_BASE_URL 和 QWEN_MODEL，以及服务器是否支持 /v1/responses。",
    429: _LATER,
    503: _LATER,
}
_FAILURES = (OSError, http.client.HTTPException, zlib.error, EOFError, ValueError)
_CAUSES: tuple[tuple[type[Exception], str, str], ...] = (
    (TimeoutError, "超时，没有收完响应", "请检查服务器是否卡住，或调大 timeout。"),
    (
        ConnectionRefusedError,
        "无法连接",
        "server 启动了吗？请启动它，或加上 --local-qwen 使用本地模型，或把 QWEN_BASE_URL 指向已有的服务器。",
    ),
    (socket.gaierror, "找不到这个主机", "请检查 QWEN_BASE_URL 和网络。"),
    (ssl.SSLCertVerificationError, "的 TLS 证书不可信", "请换用可信的证书，或用 SSL_CERT_FILE 指定它的 CA。"),
    (ssl.SSLError, "的 TLS 连接失败", "请检查 QWEN_BASE_URL 应该是 http 还是 https。"),
    (ConnectionError, "没有得到响应，连接就断开了", "请查看模型服务器的日志后重试。"),
    (http.client.IncompleteRead, "的响应不完整", "请查看模型服务器的日志后重试。"),
    (http.client.HTTPException, "收到的不是 HTTP 响应", "请检查 QWEN_BASE_URL 的端口。"),
    (_TooLargeError, "的响应太大", "请检查服务器，或调大 max_response_bytes。"),
    (OSError, "网络出错", "请检查 QWEN_BASE_URL、代理设置和网络。"),
    (Exception, "的响应或代理设置无法解读（压缩、编码或格式损坏）", "请检查服务器和它前面的代理。"),
)


class Transport:
    """POSTs to base_url's /v1/responses. Settings and errors are those of ResponsesClient."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float, max_bytes: int) -> None:
        self._url, is_local = _endpoint(base_url)
        if api_key and not re.fullmatch(r"[!-~]+", api_key):
            raise MiniPiError("api_key 只能有可见的 ASCII 字符，不能有空格和换行。请检查 QWEN_API_KEY。")
        if not 0 < timeout <= 1e9:
            raise MiniPiError(f"timeout 必须是正的秒数，收到 {timeout!r}。请改正后重试。")
        self.request = f"POST {self._url}"
        self._key, self._timeout, self._max_bytes = api_key, timeout, max_bytes
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._opener = urllib.request.OpenerDirector()
        self._connections = _Connections()
        proxies = urllib.request.ProxyHandler({} if is_local else None)  # None: the environment's
        for handler in (proxies, self._connections, urllib.request.UnknownHandler()):
            self._opener.add_handler(handler)

    def error(
        self, what: str, advice: str, body: object = None, status: int | None = None
    ) -> ModelRequestError:
        """An error that says what was asked of whom, what the server said (body), and what to do."""
        said = f"。{advice}" if body is None else f"：{explain(body, advice, self._key)}"
        return ModelRequestError(f"{self.request} {what}{said}", status)

    def post(self, body: bytearray) -> Iterator[bytes]:
        """Yield the answer's body in UTF-8 as it comes. Leaving early, by close(), drops the connection."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            with self._explained():
                request = urllib.request.Request(self._url, body, self._headers, method="POST")
                answer = self._opener.open(request, timeout=_left(deadline))
            try:
                pieces = answer.pieces(self._max_bytes)
                while 200 <= answer.status < 300:
                    with self._explained():
                        piece = next(pieces, None)
                    if piece is None:
                        return
                    yield piece
                refusal = self._refusal(answer, pieces)
            finally:
                self._connections.take_back(answer)
            wait = max(_retry_after(answer.headers.get("Retry-After", "")), min(2**attempt / 2, 8))
            if answer.status not in (429, 503) or wait >= deadline - time.monotonic():
                raise refusal
            time.sleep(wait)

    def _refusal(self, answer: _Answer, pieces: Iterator[bytes]) -> ModelRequestError:
        text = b""
        with contextlib.suppress(MiniPiError, *_FAILURES):  # the status is known, whatever the body holds
            while len(text) < 65536 and (piece := next(pieces, None)) is not None:
                text += piece
        body: object = text.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, ProtocolError):
            body = strict_json(str(body))
        advice = _ADVICE.get(answer.status, "请查看模型服务器的日志后重试。")
        if 300 <= answer.status < 400:
            advice = f"不跟随重定向（{answer.headers.get('Location')}），请把 QWEN_BASE_URL 改成最终的地址。"
        return self.error(f"返回 HTTP {answer.status}", advice, body, answer.status)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the standard library raises about an exchange into an error that says what to do."""
        try:
            yield
        except _FAILURES as failure:
            cause = getattr(failure, "reason", failure)
            cause = cause if isinstance(cause, Exception) else failure
            what, advice = next((what, advice) for kind, what, advice in _CAUSES if isinstance(cause, kind))
            detail = str(cause) if isinstance(cause, OSError) else ""
            if isinstance(cause, TimeoutError):
                detail = f"timeout={self._timeout:g} 秒"
            raise self.error(what, advice, detail or None) from None


def _endpoint(base_url: str) -> tuple[str, bool]:
    """The URL to post to, and whether it is on this machine. The error shows no URL: it may hold a password."""
    try:
        parts = urllib.parse.urlsplit(base_url)
        valid = bool(parts.hostname) and parts.scheme in ("http", "https") and (parts.port or 80) > 0
        valid = valid and not re.search(r"[^!-~]|[@?#]", base_url)
    except (ValueError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise MiniPiError(
            "base_url 应该像 http://127.0.0.1:8021 或 https://主机/v1：以 http:// 或 https:// 开头，"
            "只有可见的 ASCII 字符，不带用户名、密码、? 和 #。请检查 QWEN_BASE_URL。"
        )
    path = re.sub(r"(/+v1)?/*$", "", parts.path)
    return f"{parts.scheme}://{parts.netloc}{path}/v1/responses", _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:  # 127.1 is 127.0.0.1, too
        host = str(socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)[0][4][0])
    except OSError:
        return host == "localhost" or host.endswith(".localhost")
    return host.startswith(("127.", "::ffff:127.")) or host in ("::1", "0.0.0.0", "::")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _retry_after(value: str) -> float:
    """Seconds that a Retry-After header asks for, as number or date; 0 for nonsense."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value.strip()):
        return float(value)
    try:
        return email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0


class _Connections(urllib.request.BaseHandler):
    """One connection per thread, out of reach while it is in use: what breaks off half-way is dropped."""

    def __init__(self) -> None:
        self._idle = threading.local()
        self._context: ssl.SSLContext | None = None

    def http_open(self, request: urllib.request.Request) -> _Answer:
        deadline = time.monotonic() + (request.timeout or 0)
        kept: _Connection | None = getattr(self._idle, "connection", None)
        self._idle.connection = None
        if kept is not None and kept.usable():
            try:
                return kept.exchange(request, deadline)
            except (ConnectionError, http.client.HTTPException):
                if kept.answered:
                    raise
        if request.type == "https" and self._context is None:
            self._context = ssl.create_default_context()
        fresh = _Connection(request, self._context if request.type == "https" else None)
        return fresh.exchange(request, deadline)

    https_open = http_open

    def take_back(self, answer: _Answer) -> None:
        if answer.whole and not answer.will_close:
            self._idle.connection = answer.connection
        else:
            answer.connection.close()
        answer.close()


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait ends with the deadline of the exchange it is in."""

    def __init__(self, request: urllib.request.Request, context: ssl.SSLContext | None) -> None:
        self.default_port = 443 if context else 80
        super().__init__(request.host)
        self._tls, self._process = context, os.getpid()

    def __del__(self) -> None:
        self.close()

    def usable(self) -> bool:
        """Whether nothing has come since the last answer, not even its end. A fork must not share it."""
        if self._process == os.getpid():
            self.sock.settimeout(0)
            try:  # not SSLSocket's recv, which allows no flags
                socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
            except OSError:
                pass
        self.close()
        return False

    def exchange(self, request: urllib.request.Request, deadline: float) -> _Answer:
        self.deadline, self.answered = deadline, False
        headers = dict(request.header_items())
        tunnel: str | None = getattr(request, "_tunnel_host", None)
        if tunnel:
            login = headers.pop("Proxy-authorization", None)
        try:
            if self.sock is None:
                if tunnel:
                    self.set_tunnel(tunnel, headers={"Proxy-Authorization": login} if login else None)
                self.connect()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its answer may say why
                self.request("POST", request.selector, request.data, headers)
            return cast(_Answer, self.getresponse())
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        self.timeout = _left(self.deadline)
        super().connect()  # with the way through the proxy
        if self._tls is not None:
            self.sock.settimeout(_left(self.deadline))
            name = getattr(self, "_tunnel_host", None) or self.host
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=name)

    def send(self, data: Any) -> None:
        with memoryview(data) as view:  # let go at once: the buffer grows again after an error, too
            sent = 0
            while sent < len(view):
                self.sock.settimeout(_left(self.deadline))
                sent += self.sock.send(view[sent:])

    def response_class(self, sock: socket.socket, **options: Any) -> _Answer:  # type: ignore[override]
        return _Answer(self, sock, **options)


class _Answer(http.client.HTTPResponse):
    """An answer whose body can be had in pieces; `whole` once its end was reached."""

    def __init__(self, connection: _Connection, sock: socket.socket, **options: Any) -> None:
        super().__init__(cast(socket.socket, _Stream(connection, sock)), **options)
        self.connection, self.whole = connection, False

    def pieces(self, limit: int) -> Iterator[bytes]:
        """The body as it comes, decompressed, in UTF-8; its end is checked, and that it keeps the limit."""
        pieces = _capped(self._received(), limit)
        encoding = self.headers.get("Content-Encoding", "").strip().lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            pieces = _capped(_inflated(pieces), limit)
        elif encoding not in ("", "identity"):
            raise ValueError(encoding)
        charset = self.headers.get_content_charset("utf-8")
        with contextlib.suppress(LookupError):  # no such charset: then JSON's own
            b" ".decode(charset, "ignore")
            if codecs.lookup(charset).name != "utf-8":
                pieces = (text.encode() for text in codecs.iterdecode(pieces, charset))
        yield from pieces
        self.whole = True

    def _received(self) -> Iterator[bytes]:
        while piece := self.read1(65536):
            yield piece
        if self.length:  # read1 does not tell a body that stops short
            raise http.client.IncompleteRead(b"", self.length)


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """gzip or zlib undone in small steps, so that a bomb is noticed before it is in memory."""
    inflater = zlib.decompressobj(47)
    for piece in pieces:
        while piece and not inflater.eof:
            yield inflater.decompress(piece, 65536)
            piece = inflater.unconsumed_tail
    yield inflater.flush()
    if not inflater.eof:
        raise EOFError


def _capped(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise _TooLargeError(f"上限是 {limit} 字节")
        yield piece


class _Stream(io.RawIOBase):
    """What the server sends, each read within what is left until the connection's deadline."""

    def __init__(self, connection: _Connection, sock: socket.socket) -> None:
        self._connection, self._sock = connection, sock
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left(self._connection.deadline))
        count = self._raw.readinto(buffer)
        self._connection.answered = self._connection.answered or bool(count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
