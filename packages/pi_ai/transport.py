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
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

from .errors import MiniPiError, ModelRequestError, ProtocolError
from .reading import explain, strict_json

_READ_LOG = "请查看模型服务器的日志后重试。"
_LATER = "请稍后再试，或调大 timeout。"
_CHECK_KEY = "请检查 QWEN_API_KEY。"
_ADVICE = {401: _CHECK_KEY, 403: _CHECK_KEY, 404: "请检查 QWEN_BASE_URL 和模型名。", 429: _LATER, 503: _LATER}
_START = "server 启动了吗？请启动它，或加上 --local-qwen 使用本地模型，或把 QWEN_BASE_URL 指向已有的服务器。"
_CAUSES: list[tuple[type[Exception], str, str]] = [
    (TimeoutError, "超时，没有收完响应", "请检查服务器是否卡住，或调大 timeout。"),
    (ConnectionRefusedError, "无法连接", _START),
    (ConnectionError, "没有收完响应，连接就断开了", _READ_LOG),
    (socket.gaierror, "找不到这个主机", "请检查 QWEN_BASE_URL 和网络。"),
    (ssl.SSLCertVerificationError, "的 TLS 证书不可信", "请换用可信的证书，或用 SSL_CERT_FILE 指定它的 CA。"),
    (ssl.SSLError, "的 TLS 连接失败", "请检查 QWEN_BASE_URL 应该用 http 还是 https。"),
    (OSError, "网络出错", "请检查 QWEN_BASE_URL、代理设置和网络。"),
    (http.client.IncompleteRead, "的响应不完整", _READ_LOG),
    (http.client.HTTPException, "收到的不是 HTTP 响应", "请检查 QWEN_BASE_URL 的端口。"),
    (OverflowError, "的响应太大", "请检查服务器，或调大 max_response_bytes。"),
    (Exception, "的响应无法解码（压缩、编码或格式有误）", "请检查服务器和它前面的代理。"),
]
_FAILURES = (OSError, http.client.HTTPException, OverflowError, ValueError, EOFError, zlib.error)


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
        self._idle = threading.local()  # one connection per thread, out of reach while it is in use
        self._opener = urllib.request.OpenerDirector()
        proxies = urllib.request.ProxyHandler({} if is_local else None)  # None: the environment's
        for handler in (proxies, _Dialer(), urllib.request.UnknownHandler()):
            self._opener.add_handler(handler)

    def error(
        self, what: str, advice: str, body: object = None, status: int | None = None
    ) -> ModelRequestError:
        """An error that says what was asked of whom, what the server said (body), and what to do."""
        said = f"。{advice}" if body is None else f"：{explain(body, advice, self._key)}"
        return ModelRequestError(f"{self.request} {what}{said}", status)

    def post(self, body: bytearray) -> Generator[bytes]:
        """Yield the answer's body in UTF-8 as it comes. Leaving early, by close(), drops the connection."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            answer = self._try(self._exchange, body, deadline)
            try:
                pieces = answer.pieces(self._max_bytes)
                while 200 <= answer.status < 300:
                    piece = self._try(next, pieces, None)
                    if piece is None:
                        return
                    yield piece
                refusal = self._refusal(answer, pieces)
            finally:
                answer.close()
                if answer.whole and not answer.will_close:
                    self._idle.connection = answer.connection
                else:
                    answer.connection.close()
            wait = max(_retry_after(answer.headers.get("retry-after", "")), min(2**attempt / 2, 8))
            if answer.status not in (429, 503) or wait >= deadline - time.monotonic():
                raise refusal
            time.sleep(wait)

    def _exchange(self, body: bytearray, deadline: float) -> _Answer:
        kept: _Connection | None = getattr(self._idle, "connection", None)
        self._idle.connection = None
        if kept is not None and kept.is_quiet():
            try:
                return kept.exchange(body, deadline)
            except (ConnectionError, http.client.HTTPException):
                if kept.answered:
                    raise
        fresh: _Connection = self._opener.open(urllib.request.Request(self._url, headers=self._headers))
        return fresh.exchange(body, deadline)

    def _refusal(self, answer: _Answer, pieces: Iterator[bytes]) -> ModelRequestError:
        text = b""
        with contextlib.suppress(*_FAILURES):  # the status is known, whatever becomes of the body
            while len(text) < 65536 and (piece := next(pieces, None)) is not None:
                text += piece
        body: object = text.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, ProtocolError):
            body = strict_json(str(body))
        advice = _ADVICE.get(answer.status, _READ_LOG)
        if 300 <= answer.status < 400:
            advice = f"不跟随重定向（{answer.headers.get('location')}），请把 QWEN_BASE_URL 改成最终的地址。"
        return self.error(f"返回 HTTP {answer.status}", advice, body, answer.status)

    def _try(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """step(*arguments), with what the standard library raises turned into an error that helps."""
        try:
            return step(*arguments)
        except _FAILURES as failure:
            what, advice = next(rest for kind, *rest in _CAUSES if isinstance(failure, kind))
            if isinstance(failure, TimeoutError):
                what += f"（timeout={self._timeout:g} 秒）"
            raise self.error(what, advice, getattr(failure, "strerror", None)) from None


def _endpoint(base_url: str) -> tuple[str, bool]:
    """Where to post to, and whether that is this machine. The error shows no URL: it may hold a password."""
    try:
        parts = urllib.parse.urlsplit(base_url)
        valid = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        valid = False
    if not valid or re.search(r"[^!-~]|[@?#]", base_url):
        raise MiniPiError(
            "base_url 应该像 http://127.0.0.1:8021 或 https://主机/v1：以 http:// 或 https:// 开头，"
            "只有可见的 ASCII 字符，不带用户名、密码、? 和 #。请检查 QWEN_BASE_URL。"
        )
    path = re.sub(r"(/+v1)?/*$", "", parts.path)
    is_local = re.fullmatch(r"127(\.\d+){1,3}|::1|(.*\.)?localhost", parts.hostname or "") is not None
    return f"{parts.scheme}://{parts.netloc}{path}/v1/responses", is_local


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


class _Dialer(urllib.request.BaseHandler):
    """Makes connections the way that urllib has chosen, straight or through a proxy."""

    tls: ssl.SSLContext | None = None  # one for all: building it takes longer than a turn

    def http_open(self, request: urllib.request.Request) -> _Connection:
        if request.type == "https" and self.tls is None:
            self.tls = ssl.create_default_context()
        return _Connection(request, self.tls)

    https_open = http_open


class _Connection(http.client.HTTPConnection):
    """A connection for one kind of POST, whose every wait ends with the deadline of the exchange."""

    def __init__(self, request: urllib.request.Request, tls: ssl.SSLContext | None) -> None:
        self.default_port = 443 if tls else 80
        super().__init__(request.host)
        self._tls, self._process = tls, os.getpid()
        self.deadline, self.answered = 0.0, False
        headers, tunnel = dict(request.header_items()), getattr(request, "_tunnel_host", None)
        if tunnel:
            login = headers.pop("Proxy-authorization", None)
            self.set_tunnel(tunnel, headers={"Proxy-Authorization": login} if login else None)
        headers["Host"] = urllib.parse.urlsplit(request.full_url).netloc
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        self._head = (
            f"POST {request.selector} HTTP/1.1\r\n{''.join(lines)}Content-Length: %d\r\n\r\n".encode()
        )

    def __del__(self) -> None:
        self.close()

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, not even its end; False in a forked process."""
        try:
            self.sock.settimeout(0)
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)  # SSLSocket's own takes no flags
        except BlockingIOError:
            return self._process == os.getpid()
        except OSError:
            pass
        return False

    def exchange(self, body: bytearray, deadline: float) -> _Answer:
        self.deadline, self.answered = deadline, False
        try:
            if self.sock is None:
                self.connect()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer may say why
                self.send(self._head % len(body))
                self.send(body)
            answer = _Answer(self)
            answer.begin()
        except BaseException:
            self.close()
            raise
        return answer

    def connect(self) -> None:
        self.timeout = _left(self.deadline)
        super().connect()  # and through the proxy
        if self._tls is not None:
            self.sock.settimeout(_left(self.deadline))
            host = getattr(self, "_tunnel_host", None) or self.host
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=host)

    def send(self, data: Any) -> None:
        sent = 0
        with memoryview(data) as view:  # released at once, or the buffer could not grow after an error
            while sent < len(view):
                self.sock.settimeout(_left(self.deadline))
                sent += self.sock.send(view[sent:])


class _Answer(http.client.HTTPResponse):
    """An answer whose body comes in pieces; `whole` once its end was reached."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__(connection.sock, method="POST")
        self.fp = io.BufferedReader(_Stream(connection, self.fp.detach()))
        self.connection, self.whole = connection, False

    def begin(self) -> None:
        """Read the head. http.client's own would give it to an e-mail parser, which costs more than all
        the rest of a turn."""
        status = 100
        while status in (100, 102, 103):  # not yet the answer
            version, status, _ = self._read_status()  # type: ignore[attr-defined]
            lines: list[bytes] = []
            while (line := self.fp.readline(65537)) not in (b"\r\n", b"\n"):
                lines.append(line)
                if len(lines) > 100 or not line.endswith(b"\n"):
                    raise http.client.HTTPException
        pairs = (line.decode("latin-1").partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.headers = headers  # type: ignore[assignment]
        self.status, self.version = status, 10 if version == "HTTP/1.0" else 11
        self.chunked, self.chunk_left = headers.get("transfer-encoding", "").lower() == "chunked", None
        length = "0" if status in (204, 304) else headers.get("content-length")
        if (length and not re.fullmatch("[0-9]+", length)) or not version.startswith("HTTP/1."):
            raise http.client.HTTPException
        self.length = int(length) if length and not self.chunked else None
        self.will_close = self._check_close() or (self.length is None and not self.chunked)  # type: ignore[attr-defined]

    def pieces(self, limit: int) -> Iterator[bytes]:
        """The body as it comes: decompressed, in UTF-8, within the limit, its end checked."""
        pieces = _capped(self._received(), limit)
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            pieces = _capped(_inflated(pieces), limit)
        elif encoding not in ("identity", ""):
            raise ValueError(encoding)
        charset = re.search(r"charset=[\"']?([\w-]+)", self.headers.get("content-type", ""), re.I)
        if charset and charset[1].lower() != "utf-8":
            with contextlib.suppress(LookupError):  # an unknown charset: JSON is UTF-8
                b" ".decode(charset[1], "ignore")
                pieces = (text.encode() for text in codecs.iterdecode(pieces, charset[1]))
        yield from pieces
        self.whole = True

    def _received(self) -> Iterator[bytes]:
        while piece := self.read1(65536):
            yield piece
        if self.length:  # read1 takes a body that stops short for whole
            raise http.client.IncompleteRead(b"", self.length)


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """gzip or zlib undone in small steps, so that a bomb is noticed before it fills the memory."""
    inflater = zlib.decompressobj(47)
    for piece in pieces:
        while piece and not inflater.eof:
            yield inflater.decompress(piece, 65536)
            piece = inflater.unconsumed_tail
    yield inflater.flush()
    if not inflater.eof:
        raise EOFError


def _capped(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for piece in pieces:
        limit -= len(piece)
        if limit < 0:
            raise OverflowError
        yield piece


class _Stream(io.RawIOBase):
    """What the server sends, each read within what is left until the connection's deadline."""

    def __init__(self, connection: _Connection, raw: io.RawIOBase) -> None:
        self._connection, self._raw = connection, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        connection = self._connection
        connection.sock.settimeout(_left(connection.deadline))
        count = self._raw.readinto(buffer)
        connection.answered = connection.answered or bool(count)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
