"""One POST to the model: settings, errors that say what to do, when to ask again, what a body may be.

The HTTP is urllib's: see wire.py for the connections, proxies.py for the way. The name lookup alone can
outlast the deadline: it cannot be interrupted.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from http.client import HTTPException, IncompleteRead
from typing import Any
from urllib.error import URLError
from urllib.parse import SplitResult, urlsplit

from .errors import MiniPiError, ModelRequestError, ProtocolError, without_secret
from .proxies import Proxy, proxy_for
from .reading import refusal, strict_json
from .wire import OPENER, STREAM_FACTOR, Answer, Connection, Deadline, Post

_LOG = "请查看模型服务器的日志后重试。"
_KEY, _LONGER = "请检查 QWEN_API_KEY。", "调大 QWEN_TIMEOUT（timeout，单位是秒）。"
_LATER = f"请稍后再试，或{_LONGER}"
_CHANGE = "请按服务器说的改正请求（模型名、工具的声明、request_options），原样再问没有用。"
_ADVICE = {
    400: _CHANGE,
    401: _KEY,
    403: _KEY,
    404: "请检查 QWEN_BASE_URL 和模型名。",
    413: "请求太大了，请缩短问题或开始新的对话。",
    422: _CHANGE,
    429: _LATER,
    503: _LATER,
}
_NO_REASONING = "服务器不接受 reasoning。请设置 QWEN_REASONING=（空，不发送它）。"
_REASONING = re.compile(r"\breasoning|\bthinking\b|\brs_\w|encrypted_content", re.IGNORECASE)
_START = "server 启动了吗？请启动它，或加上 --local-qwen 使用本地模型，或把 QWEN_BASE_URL 指向已有的服务器。"
_NO_QUOTA = "额度用完了，再问也没有用。请充值，或换一个 QWEN_API_KEY。"
_FAILURES = (OSError, EOFError, OverflowError, ValueError, HTTPException)
_CAUSES: tuple[tuple[Any, str, str], ...] = (
    (TimeoutError, "超时，没有收完响应", f"请检查服务器是否卡住，或{_LONGER}"),
    (ConnectionRefusedError, "无法连接", _START),
    (ConnectionError, "没有收到响应，连接就断开了", _LOG),
    (ssl.SSLCertVerificationError, "的 TLS 证书不可信", "请换用可信的证书，或用 SSL_CERT_FILE 指定它的 CA。"),
    (OSError, "网络出错", "请检查 QWEN_BASE_URL（主机、端口、http 还是 https）、代理设置和网络。"),
    ((EOFError, IncompleteRead), "的响应不完整", _LOG),
    (OverflowError, "的响应太大", "请检查服务器，或调大 max_response_bytes。"),
    (Exception, "收到的不是 HTTP 响应，或它的压缩、编码有误", "请检查 QWEN_BASE_URL 的端口，以及代理。"),
)
# What OpenAI, Anthropic and those after them call it in an error object, under HTTP 200 or in a stream too.
_BUSY = {"rate_limit_exceeded": 429, "rate_limit_error": 429, "too_many_requests": 429}
_SPENT = ("insufficient_quota", "exceeded_current_quota_error", "billing_hard_limit_reached")
_REST_SECONDS, _REST_BYTES = 0.2, 65536  # what a reader who has what he wanted still waits for, and takes


class Transport:
    """POSTs to base_url's /v1/responses. Settings and errors are those of ResponsesClient."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float, max_bytes: int) -> None:
        self._url = _endpoint(base_url)
        if not isinstance(api_key, str | None) or not re.fullmatch(r"[!-~]*", api_key or ""):
            raise MiniPiError("api_key 只能有可见的 ASCII 字符，不能有空格和换行。请检查 QWEN_API_KEY。")
        if type(timeout) not in (int, float) or not 0 < timeout <= 1e9:
            raise MiniPiError(f"timeout 必须是正的秒数，收到 {timeout!r:.50}。请检查 QWEN_TIMEOUT。")
        if type(max_bytes) is not int or max_bytes <= 0:
            raise MiniPiError(f"max_response_bytes 必须是正整数，收到 {max_bytes!r:.50}。请改正后重试。")
        self.request = f"POST {self._url.geturl()}"
        self._key, self._timeout, self._max_bytes = api_key, timeout, max_bytes
        self._headers = {"Host": self._url.netloc, "User-Agent": "mini_pi"}
        self._headers |= {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._idle = threading.local()  # a connection in use is out of reach: broken off, it is dropped

    def deadline(self) -> Deadline:
        """For one request and its repetitions; a stream, once it has begun, has one of its own."""
        return Deadline(self._timeout)

    def error(
        self, what: str, advice: str, body: object = None, status: int | None = None, retry_after: str = ""
    ) -> ModelRequestError:
        """An error that says what was asked of whom, what the server said (body), and what to do.

        status: that of HTTP; without one, an error object in body may say that it is a 429.
        """
        if body is None:
            return ModelRequestError(f"{self.request} {what}。{advice}", status)
        named = _error_names(body)
        if status is None and any(name in ("429", *_BUSY, *_SPENT) for name in named):
            status, advice = 429, _LATER
        is_spent = status == 429 and any(name in _SPENT for name in named)
        shown = without_secret(body, self._key)
        error = refusal(f"{self.request} {what}", shown, _NO_QUOTA if is_spent else advice, status)
        if status in (429, 503) and not is_spent:
            error.retry_after = _seconds(retry_after)
        return error

    def wait(
        self, error: ModelRequestError, attempt: int, deadline: Deadline, tell: Callable[..., Any]
    ) -> None:
        """Sleep until asking again makes sense, after tell(seconds, error). attempt: from 0.

        Raises error when it makes none, or not within the deadline.
        """
        if error.retry_after is None:
            raise error
        seconds = max(error.retry_after, min(2**attempt / 2, 8))
        if seconds >= deadline.left():
            if error.retry_after > 0:
                error.args = (
                    f"{error}服务器要 {error.retry_after:.0f} 秒后才接受请求（Retry-After），等不到那时。",
                )
            raise error
        tell(seconds, error)
        time.sleep(seconds)

    def post(self, body: bytearray, deadline: Deadline, *, stream: bool = False) -> Generator[bytes]:
        """Yield the answer's body in UTF-8 as it comes; stream: with the deadline of a stream.

        Leaving early, by close(), keeps the connection only if the rest of the answer is already there.
        Raises ModelRequestError; nothing is asked again.
        """
        connection, answer = self._try(deadline, self._open, body, deadline)
        is_whole = False
        try:
            pieces = _pieces(answer, self._max_bytes)
            if not 200 <= answer.status < 300:
                text, is_whole = _beginning(pieces)
                raise self._refusal(answer, text)
            if stream:
                deadline = answer.wire.deadline = Deadline(self._timeout, stream=True)
            while (piece := self._try(deadline, next, pieces, None)) is not None:
                yield piece
            is_whole = True
        except GeneratorExit:
            if not answer.will_close:
                answer.wire.deadline = Deadline(_REST_SECONDS)
                is_whole = _beginning(pieces)[1]
        finally:
            answer.close()
            if is_whole and not answer.will_close and not answer.wire.stray:
                self._idle.connection = connection
            else:
                connection.close()

    def _open(self, body: bytearray, deadline: Deadline) -> tuple[Connection, Answer]:
        request = Post(self._url.geturl(), body, self._headers)
        request.take, request.deadline = self._take, deadline
        if self._proxy:
            request.set_proxy(self._proxy.host, "http")
            if self._proxy.login:
                request.add_header("Proxy-Authorization", self._proxy.login)
        kept: Connection | None = getattr(self._idle, "connection", None)
        try:
            answer = OPENER.open(request)
            return request.connection, answer
        except OSError:
            if kept is None or kept.wire.answered:
                raise
        return self._open(body, deadline)  # once: a kept connection died before the first byte of an answer

    def _take(self, host: str) -> Connection:
        """This thread's idle connection if it is still good, else a new one to host, a proxy or the server."""
        kept: Connection | None = getattr(self._idle, "connection", None)
        self._idle.connection = None
        if kept is not None and kept.is_quiet():
            return kept
        name = self._url.hostname or ""
        if self._proxy:
            return Connection(host, None, name, self._tls)
        return Connection(name, self._url.port or (443 if self._tls else 80), name, self._tls)

    @cached_property
    def _proxy(self) -> Proxy | None:
        return proxy_for(self._url)

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        """One for all connections: making it takes longer than a turn."""
        return ssl.create_default_context() if self._url.scheme == "https" else None

    def _refusal(self, answer: Answer, text: bytes) -> ModelRequestError:
        body: object = text.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, ProtocolError):
            body = strict_json(str(body))
        advice = _ADVICE.get(answer.status, _LOG)
        if answer.status in (400, 404, 422) and _REASONING.search(str(body)[:_REST_BYTES]):
            advice = _NO_REASONING
        if 300 <= answer.status < 400:
            advice = "不跟随重定向，请把 QWEN_BASE_URL 改成最终的地址。"
            body = answer.headers.get("location", body)
        retry_after = answer.headers.get("retry-after", "")
        return self.error(f"返回 HTTP {answer.status}", advice, body, answer.status, retry_after)

    def _try(self, deadline: Deadline, step: Callable[..., Any], *arguments: Any) -> Any:
        """step(*arguments), with what the standard library raises turned into an error that helps."""
        try:
            return step(*arguments)
        except _FAILURES as failure:
            error = self._failed(failure, deadline)
        raise error  # not above: as its context, failure would keep frames and sockets alive with it

    def _failed(self, failure: Exception, deadline: Deadline) -> ModelRequestError:
        if isinstance(failure, URLError) and isinstance(failure.reason, Exception):
            failure = failure.reason
        what, advice = next((what, advice) for kind, what, advice in _CAUSES if isinstance(failure, kind))
        if isinstance(failure, TimeoutError):
            silence = "里没有新内容" if deadline.left() > 0 else f"的 {STREAM_FACTOR} 倍里没有收完"
            what += f"（timeout={self._timeout:g} 秒{silence if deadline.stream else ''}）"
        said = getattr(failure, "strerror", None) or (str(failure) if type(failure) is OSError else None)
        error = self.error(what, advice, said)
        error.timed_out = isinstance(failure, TimeoutError)
        return error


def _error_names(body: object) -> list[str]:
    """What the error object in a response, an event or a body calls itself: code, type and status."""
    layers = [body]
    for key in ("response", "error"):
        layers += [layer[key] for layer in layers if isinstance(layer, dict) and key in layer]
    keys = ("code", "type", "status", "status_code")
    return [str(layer.get(key)).lower() for layer in layers if isinstance(layer, dict) for key in keys]


def _beginning(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """What is there of the pieces, up to a limit and whatever befalls them, and whether that is all."""
    text = b""
    with contextlib.suppress(*_FAILURES):
        while len(text) < _REST_BYTES:
            piece = next(pieces, None)
            if piece is None:
                return text, True
            text += piece
    return text, False


def _pieces(answer: Answer, limit: int) -> Iterator[bytes]:
    """The body as it comes: decompressed, in UTF-8, within the limit, its end checked."""
    pieces = _capped(answer.received(), limit)
    encoding = answer.headers.get("content-encoding", "identity").lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        pieces = _capped(_inflated(pieces), limit)
    elif encoding not in ("identity", ""):
        raise ValueError
    charset = re.search(r"charset=[\"']?([\w-]+)", answer.headers.get("content-type", ""), re.IGNORECASE)
    if charset and charset[1].lower() != "utf-8":
        with contextlib.suppress(LookupError):  # an unknown charset: JSON is UTF-8
            b" ".decode(charset[1], "ignore")
            pieces = (text.encode() for text in codecs.iterdecode(pieces, charset[1]))
    yield from pieces


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


def _seconds(retry_after: str) -> float:
    """Seconds that a Retry-After header asks for, as number or date; 0 for nonsense."""
    if re.fullmatch(r"[0-9]*(\.[0-9]+)?", retry_after):
        return min(float(retry_after or 0), 1e9)
    from email.utils import parsedate_to_datetime

    try:
        return max(0, parsedate_to_datetime(retry_after).timestamp() - time.time())
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
