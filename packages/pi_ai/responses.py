"""The Responses protocol: one request to the model, and what its answer is made of."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import CutOffCallError, ModelRequestError, ProtocolError
from .payload import PayloadEncoder
from .reading import JsonObject, events, explain, strict_json

_CHECK_SERVER = "请检查模型服务器的日志，以及它是否支持 Responses 协议。"
_CHECK_PARSER = "请检查服务器的 chat template 或 tool parser，或换用工具调用能力更强的模型。"
_RAISE_CAP = "请调大 QWEN_MAX_OUTPUT_TOKENS（max_output_tokens）后重试。"
# A think block that opens the text, closed or not; or one of which only the end is there, on its own line.
_THINK = re.compile(
    r"\s*<think>(?:.*?</think>\s*|.*)|(?:.*?\n)??[ \t]*</think>[ \t\r]*(?:\n\s*|\Z)", re.DOTALL
)
# What may stand between the last whole token and the end of a JSON text that was cut off.
_CUT = re.compile(r"|t|tr|tru|f|fa|fal|fals|n|nu|nul|-|\.|[eE][+-]?|\\?u?[0-9a-fA-F]{0,3}")


@dataclass(frozen=True)
class FunctionCall:
    """A tool call of the model, its arguments parsed."""

    name: str
    call_id: str
    arguments: dict[str, Any]


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.encoder = PayloadEncoder()


class ResponsesClient:
    """Asks one server that speaks the Responses protocol. Threads may share it.

    base_url: with or without /v1. api_key: sent to base_url's origin and nowhere else, never shown.
    timeout: seconds for a whole request with its retries. max_response_bytes: after decompression.
    Raises MiniPiError for a setting that no request could be sent with.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_response_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        from .transport import Transport  # not above: HTTP is most of what an import would cost

        self._transport = Transport(base_url, api_key, timeout, max_response_bytes)
        self._per_thread = _PerThread()

    def create(self, payload: Mapping[str, Any], on_text: Callable[[str], None] | None = None) -> JsonObject:
        """Send payload, return the complete response object.

        on_text: asks for a stream and gets each piece of text as it arrives. The object returned is
        the same, and the truth where the two disagree. What on_text raises passes through.

        Raises ModelRequestError when there is no usable answer, ProtocolError when the answer is not
        an object of strict JSON, MiniPiError when payload cannot be written as JSON.
        """
        if on_text is not None:
            payload = {**payload, "stream": True}
        body = self._per_thread.encoder.encode(payload)
        with contextlib.closing(self._transport.post(body)) as pieces:
            response = self._whole(pieces) if on_text is None else self._streamed(pieces, on_text)
        if (failure := _failure(response)) is not None:
            raise self._transport.error("请求失败", _CHECK_SERVER, failure)
        return response

    def _whole(self, pieces: Iterator[bytes]) -> JsonObject:
        body = b"".join(pieces)
        try:
            return self._parse(body.decode())
        except UnicodeDecodeError:
            raise self._transport.error("响应不是 UTF-8", _CHECK_SERVER) from None

    def _streamed(self, pieces: Iterator[bytes], on_text: Callable[[str], None]) -> JsonObject:
        """The final object of an event stream; plain JSON instead of a stream is accepted."""
        start = b""
        while (
            not (text := start.lstrip(b"\xef\xbb\xbf \t\r\n")) and (piece := next(pieces, None)) is not None
        ):
            start += piece
        pieces = itertools.chain([start], pieces)
        if text.startswith(b"{"):
            response = self._whole(pieces)
            if _failure(response) is None and (shown := output_text(response_output(response), response)):
                on_text(shown)
            return response
        for name, data in events(pieces):
            if data.strip() == "[DONE]":
                break
            event = self._parse(data)
            kind = event.get("type", name)
            if kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
                on_text(_unicode(event["delta"]))
            elif kind in ("response.completed", "response.incomplete"):
                if isinstance(event.get("response"), dict):
                    return event["response"]
                raise ProtocolError(f"{self._transport.request}：{kind} 事件里没有 response。{_CHECK_SERVER}")
            elif kind in ("response.failed", "error") or event.get("error"):
                raise self._transport.error("请求失败", _CHECK_SERVER, event.get("response") or event)
        raise self._transport.error("流在给出完整的响应之前就结束了", _CHECK_SERVER)

    def _parse(self, text: str) -> JsonObject:
        text = text.removeprefix("\ufeff")
        try:
            value = strict_json(text)
        except json.JSONDecodeError:
            if re.match(r"\s*(?:event|data|id|retry)?:", text):
                raise self._transport.error("要的是 JSON，收到的却是事件流", _CHECK_SERVER) from None
            raise self._transport.error("响应不是 JSON", _CHECK_SERVER, text[:300] or "空的响应") from None
        except ProtocolError as error:
            raise ProtocolError(f"{self._transport.request}：{error}{_CHECK_SERVER}") from None
        if not isinstance(value, dict):
            raise ProtocolError(f"{self._transport.request}：响应不是 JSON 对象。{_CHECK_SERVER}")
        return value


def response_output(response: JsonObject) -> list[JsonObject]:
    """The output items of a response, fit to be sent again: each as it came, except that arguments
    given as an object become the JSON string of the protocol.

    Raises ModelRequestError for a response that reports a failure, ProtocolError for one whose output
    is no list of objects.
    """
    if not isinstance(response, dict):
        raise ProtocolError(f"响应不是 JSON 对象。{_CHECK_SERVER}")
    if (failure := _failure(response)) is not None:
        raise ModelRequestError(f"服务器报告失败：{explain(failure, _CHECK_SERVER)}")
    output = response.get("output")
    if not isinstance(output, list):
        raise ProtocolError(f"响应里没有 output 列表。{_CHECK_SERVER}")
    for number, item in enumerate(output, 1):
        if not isinstance(item, dict):
            raise ProtocolError(f"output 的第 {number} 项不是对象。{_CHECK_SERVER}")
    return [_replayable(item) for item in output]


def _failure(response: JsonObject) -> object:
    """What a response says went wrong, under HTTP 200 too; None when nothing did."""
    if response.get("error") or response.get("status") == "failed":
        return response.get("error") or "status=failed"
    if "id" in response and response["id"] is None and response.get("output") is None:
        return "响应是空壳，id 和 output 都是 null，可能被代理限流"
    return None


def _replayable(item: JsonObject) -> JsonObject:
    if item.get("type") == "function_call" and isinstance(item.get("arguments"), dict):
        return {**item, "arguments": json.dumps(item["arguments"], ensure_ascii=False)}
    return item


def output_text(output: list[JsonObject], response: JsonObject) -> str:
    """The text of the assistant's messages, "" when there is none.

    A think block before it is not part of it; a refusal is no text. The top-level output_text, a
    convenience of some servers, counts only where output holds no text.
    """
    text = "".join(part["text"] for part in _parts(output) if isinstance(part.get("text"), str))
    if not text.strip() and isinstance(response.get("output_text"), str):
        text = response["output_text"]
    return _unicode(_THINK.sub("", text, count=1) if _THINK.match(text) else text)


def _parts(output: list[JsonObject], *kinds: str) -> Iterator[JsonObject]:
    for item in output:
        if item.get("type", "message") == "message" and item.get("role", "assistant") == "assistant":
            content = item.get("content")
            if isinstance(content, str):
                content = [{"type": "output_text", "text": content}]
            for part in content if isinstance(content, list) else ():
                if isinstance(part, dict) and part.get("type") in (kinds or ("output_text", "text")):
                    yield part


def _unicode(value: Any) -> Any:
    """value with a replacement character for each half of a surrogate pair, which nothing could print."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, list) else value


def unfinished(
    response: JsonObject, output: list[JsonObject], max_output_tokens: object = None
) -> str | None:
    """Why a response is half a product, and what to do; None for a whole one.

    max_output_tokens: the cap that was asked for. Some servers say "completed" although it was reached.
    """
    for part in _parts(output, "refusal"):
        if isinstance(part.get("refusal"), str) and part["refusal"].strip():
            return f"模型拒绝回答：{_unicode(part['refusal'])}。请换一种问法。"
    details, usage, status = (response.get(key) for key in ("incomplete_details", "usage", "status"))
    reason = details.get("reason") if isinstance(details, dict) else None
    caps = [cap for cap in (max_output_tokens, response.get("max_output_tokens")) if _is_count(cap)]
    used = usage.get("output_tokens") if isinstance(usage, dict) else None
    if reason == "content_filter":
        return "输出被内容过滤器（content_filter）拦下，不是完整的回答。请换一种问法。"
    if reason in ("max_output_tokens", "max_tokens", "length"):
        return f"输出达到上限（incomplete：{reason}）被截断，不是完整的回答。{_RAISE_CAP}"
    if reason or status == "incomplete":
        return f"响应不完整（incomplete：{reason or '原因不明'}），不是完整的回答。请重试。{_RAISE_CAP}"
    if status in ("cancelled", "queued", "in_progress"):
        return f"响应没有做完（status={status}）。请重试，并检查服务器是否把请求放到了后台。"
    if caps and _is_count(used) and used >= min(caps):
        return f"输出达到 max_output_tokens={min(caps)} 被截断，不是完整的回答。{_RAISE_CAP}"
    if caps and not output:
        return f"响应是空的，输出可能在 max_output_tokens={min(caps)} 处被截断。{_RAISE_CAP}"
    if any(
        item.get("status") == "incomplete"
        for item in output
        if item.get("type") in ("message", "function_call")
    ):
        return f"输出项停在中途（status=incomplete），不是完整的回答。{_RAISE_CAP}"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def parse_function_calls(output: list[JsonObject]) -> list[FunctionCall]:
    """The tool calls in order, arguments parsed from their JSON string (or taken as the object they are).

    Raises ProtocolError for anything else than a name, a call_id that is there once, and one object
    of strict JSON; CutOffCallError when that object stops in the middle. Nothing is guessed.
    """
    calls: list[FunctionCall] = []
    for item in output:
        if item.get("type") != "function_call":
            continue
        name, call_id = item.get("name"), item.get("call_id")
        for key, value in (("name", name), ("call_id", call_id)):
            if (
                not isinstance(value, str)
                or not value.strip()
                or (key == "call_id" and value != _unicode(value))
            ):
                raise ProtocolError(f"工具调用缺少有效的 {key}。{_CHECK_PARSER}")
        if any(call.call_id == call_id for call in calls):
            raise ProtocolError(f"同一个响应里 call_id {call_id} 出现了两次，结果无法配对。{_CHECK_PARSER}")
        calls.append(FunctionCall(_unicode(name), call_id, _arguments(_unicode(name), item.get("arguments"))))
    return calls


def _arguments(name: str, given: object) -> dict[str, Any]:
    value = given
    if isinstance(given, str):
        try:
            value = strict_json(given)
        except json.JSONDecodeError as error:
            open_end = error.msg.startswith("Unterminated") or _CUT.fullmatch(given[error.pos :].strip())
            if open_end and error.msg != "Extra data" and given.lstrip().startswith("{"):
                raise CutOffCallError(f"对 {name} 的调用在参数中间断开，没有执行。{_RAISE_CAP}") from None
            raise ProtocolError(
                f"对 {name} 的调用，参数不是一个 JSON 对象：{error}。{_CHECK_PARSER}"
            ) from None
        except ProtocolError as error:
            raise ProtocolError(f"对 {name} 的调用，参数不合要求：{error}{_CHECK_PARSER}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"对 {name} 的调用，参数不是一个 JSON 对象。{_CHECK_PARSER}")
    return _unicode(value)
