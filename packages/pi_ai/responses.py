"""The Responses protocol: one request to the model, and what its answer is made of."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import CutOffCallError, ModelRequestError, ProtocolError
from .payload import PayloadEncoder
from .reading import JsonObject, events, refusal, strict_json, whole_characters
from .repetition import ASK_OTHERWISE, repetition
from .thinking import without_thinking

if TYPE_CHECKING:
    from .wire import Deadline

_CHECK_SERVER = "请检查模型服务器的日志，以及它是否支持 Responses 协议。"
_CHECK_PARSER = "请检查服务器的 chat template 或 tool parser，或换用工具调用能力更强的模型。"
_RAISE_CAP = "请调大 QWEN_MAX_OUTPUT_TOKENS（max_output_tokens）后重试。"
_BLANK = b"\xef\xbb\xbf \t\r\n"
# Calls that the server has run itself, and whose results it has put beside them.
_HOSTED = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
)


@dataclass(frozen=True)
class FunctionCall:
    """A tool call of the model, its arguments parsed."""

    name: str
    call_id: str
    arguments: dict[str, Any]


class ResponsesClient:
    """Asks one server that speaks the Responses protocol. Threads may share it.

    base_url: with or without /v1. api_key: sent to base_url's origin and nowhere else, never shown.
    timeout: seconds for a whole request with its retries; of a stream, for each silence in it, and 30
    times as many for all of it. max_response_bytes: after decompression. on_wait: called with the seconds
    and the error before each wait that a busy server (429, 503) costs.
    Raises MiniPiError for a setting that no request could be sent with.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_response_bytes: int = 32 << 20,
        on_wait: Callable[[float, ModelRequestError], object] = lambda seconds, error: None,
    ) -> None:
        from .transport import Transport  # not above: HTTP is most of what an import would cost

        self._transport = Transport(base_url, api_key, timeout, max_response_bytes)
        self._on_wait = on_wait
        self._per_thread = threading.local()

    def create(self, payload: Mapping[str, Any], on_text: Callable[[str], None] | None = None) -> JsonObject:
        """Send payload, return the complete response object.

        on_text: asks for a stream, and gets each piece of text as it arrives. The object returned is
        the same, and the truth where the two disagree. What on_text raises passes through.

        429 and 503 are asked again while nothing was shown and the timeout allows, after Retry-After.
        Raises ModelRequestError when there is no usable answer, ProtocolError when it is not an object
        of strict JSON, MiniPiError when payload cannot be written as JSON.
        """
        encoder = self._per_thread.__dict__.setdefault("encoder", PayloadEncoder())
        body = encoder.encode(payload if on_text is None else {**payload, "stream": True})
        deadline, shown = self._transport.deadline(), list[str]()

        def show(text: str) -> None:
            shown.append(text)
            on_text(text)  # type: ignore[misc]

        for attempt in itertools.count():
            try:
                return self._ask(body, deadline, None if on_text is None else show)
            except ModelRequestError as error:
                if error.timed_out and (repeated := repetition("".join(shown))):
                    what = f"超时：模型的文本在重复自己（{repeated}），不会停下来"
                    raise self._transport.error(what, ASK_OTHERWISE) from None
                if shown:
                    raise
                self._transport.wait(error, attempt, deadline, self._on_wait)
        raise AssertionError

    def _ask(self, body: bytearray, deadline: Deadline, on_text: Callable[[str], None] | None) -> JsonObject:
        streamed = on_text is not None
        with contextlib.closing(self._transport.post(body, deadline, stream=streamed)) as pieces:
            response = self._whole(pieces) if on_text is None else self._streamed(pieces, on_text)
        if (failure := _failure(response)) is not None:
            raise self._transport.error("失败", _CHECK_SERVER, failure)
        return response

    def _whole(self, pieces: Iterator[bytes]) -> JsonObject:
        try:
            return self._parse(b"".join(pieces).decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise self._transport.error("的响应不是 UTF-8", _CHECK_SERVER) from None

    def _streamed(self, pieces: Iterator[bytes], on_text: Callable[[str], None]) -> JsonObject:
        """The final object of an event stream; plain JSON instead of the stream is accepted."""
        start = b""
        while not start.strip(_BLANK) and len(start) < 65536 and (piece := next(pieces, None)) is not None:
            start += piece
        pieces = itertools.chain([start], pieces)
        if start.lstrip(_BLANK).startswith((b"{", b"[", b'"', b"<")):
            response = self._whole(pieces)
            if _failure(response) is None and (text := output_text(response_output(response), response)):
                on_text(text)
            return response
        done: dict[int, JsonObject] = {}
        for name, data in events(pieces):
            if data == "[DONE]":
                break
            if not data.strip():  # a heartbeat
                continue
            event = self._parse(data)
            kind, final = event.get("type", name), event.get("response")
            if kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
                on_text(_printable(event["delta"]))
            elif kind == "response.output_item.done" and isinstance(event.get("item"), dict):
                index = event.get("output_index")
                done[index if type(index) is int else len(done)] = event["item"]
            elif kind in ("response.completed", "response.incomplete") and isinstance(final, dict):
                if done and final.get("output") in ([], None):  # some gateways leave the final one empty
                    final = {**final, "output": [done[index] for index in sorted(done)]}
                return {**final, "status": "incomplete"} if kind == "response.incomplete" else final
            elif kind in ("response.failed", "error") or event.get("error"):
                raise self._transport.error("失败", _CHECK_SERVER, final or event)
        raise self._transport.error("的事件流没有给出完整的响应就结束了", _CHECK_SERVER)

    def _parse(self, text: str) -> JsonObject:
        try:
            value = strict_json(text)
        except json.JSONDecodeError:
            stream = re.match(r"\s*(?:event|data|id|retry)?:", text)
            what = "要的是 JSON，收到的是事件流" if stream else "的响应不是 JSON"
            raise self._transport.error(what, _CHECK_SERVER, text or "内容是空的") from None
        except ProtocolError as error:
            raise ProtocolError(f"{self._transport.request} 的响应不合协议：{error}{_CHECK_SERVER}") from None
        if not isinstance(value, dict):
            raise ProtocolError(f"{self._transport.request} 的响应不是 JSON 对象。{_CHECK_SERVER}")
        return value


def response_output(response: JsonObject) -> list[JsonObject]:
    """The output items, fit to be sent again: each as it came, but for arguments that came as an
    object, which become the JSON string that the protocol asks for.

    Raises ModelRequestError when the response reports a failure, ProtocolError when output is no list
    of objects.
    """
    if (failure := _failure(response)) is not None:
        raise refusal("服务器报告失败", failure, _CHECK_SERVER)
    output = response.get("output")
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise ProtocolError(f"响应里的 output 不是对象的列表。{_CHECK_SERVER}")
    return [
        {**item, "arguments": json.dumps(item["arguments"], ensure_ascii=False)}
        if item.get("type") == "function_call" and isinstance(item.get("arguments"), dict)
        else item
        for item in output
    ]


def _failure(response: JsonObject) -> object:
    """What the response says went wrong, be it under HTTP 200; None when nothing did."""
    said, status = response.get("detail", response.get("message")), response.get("status")
    if "output" not in response and isinstance(said, str | list):
        return response
    if response.get("error") or status in ("failed", "error"):
        return response.get("error") or f"status={status}"
    if response.get("id", "") is None and response.get("output") is None:
        return "响应是个空壳（id 和 output 都是 null），可能是代理在限流"
    return None


def output_text(output: list[JsonObject], response: JsonObject) -> str:
    """The assistant's answer, "" when there is none. Think blocks, refusals and messages of the phase
    "commentary" are not part of it.

    The top-level output_text, an extra of some servers, counts only where output holds no text.
    """
    final = [item for item in output if item.get("phase") != "commentary"]
    return spoken_text(final, response if len(final) == len(output) else {})


def spoken_text(output: list[JsonObject], response: JsonObject) -> str:
    """All that the assistant says, commentary beside a call too: what is shown while a run goes on."""
    texts = [part.get("text") for part in _parts(output, "output_text", "text")]
    text = "".join(each for each in texts if isinstance(each, str))
    if not text.strip() and isinstance(response.get("output_text"), str):
        text = response["output_text"]
    return whole_characters(without_thinking(text))


def goes_on(response: JsonObject, output: list[JsonObject]) -> bool:
    """Whether the model says that it has more to do although it calls no tool: `end_turn: false`."""
    return any(each.get("end_turn") is False for each in (response, *output))


def foreign_call(output: list[JsonObject]) -> str | None:
    """The kind of a call that no tool here can run, such as custom_tool_call; None where there is none.

    What the server ran itself is none: hosted tools, and a call whose output stands beside it.
    """
    answered = [(item.get("type"), item.get("call_id")) for item in output]
    for item in output:
        kind = item.get("type")
        if not isinstance(kind, str) or kind == "function_call" or kind in _HOSTED:
            continue
        is_call = kind.endswith(("_call", "_approval_request")) or kind == "tool_use"
        if is_call and (f"{kind}_output", item.get("call_id")) not in answered:
            return kind
    return None


def _parts(output: list[JsonObject], *kinds: str) -> Iterator[JsonObject]:
    """The parts of the assistant's messages that are of one of these kinds."""
    for item in output:
        if (item.get("type") or "message") == "message" and (item.get("role") or "assistant") == "assistant":
            content = item.get("content")
            if isinstance(content, str):
                content = [{"type": "output_text", "text": content}]
            parts = content if isinstance(content, list) else []
            yield from (part for part in parts if isinstance(part, dict) and part.get("type") in kinds)


def _printable(value: Any) -> Any:
    """value with a replacement character for each half of a surrogate pair, which no file or terminal takes."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def unfinished(response: JsonObject, items: list[JsonObject], max_output_tokens: object = None) -> str | None:
    """Why the response is half a product, and what to do; None for a whole one.

    max_output_tokens: what was asked for. Some servers say "completed" although they reached it.
    """
    for part in _parts(items, "refusal"):
        if isinstance(part.get("refusal"), str) and part["refusal"].strip():
            return f"模型拒绝回答：{_printable(part['refusal'])}。请换一种问法。"
    details, usage, status = response.get("incomplete_details"), response.get("usage"), response.get("status")
    reason = details.get("reason") if isinstance(details, dict) else None
    used = usage.get("output_tokens") if isinstance(usage, dict) else None
    caps = [n for n in (max_output_tokens, response.get("max_output_tokens")) if type(n) is int and n > 0]
    reached = isinstance(used, int | float) and any(used >= cap for cap in caps)
    if reason == "content_filter":
        return "输出被内容过滤器（content_filter）拦下，不是完整的回答。请换一种问法。"
    if status in ("cancelled", "queued", "in_progress"):
        return f"响应没有做完（status={status}）。请重试，并检查服务器是否把请求放到了后台。"
    is_cut = reason or status == "incomplete" or reached
    if is_cut and (repeated := repetition(spoken_text(items, response))):
        return f"模型的文本在重复自己（{repeated}），到了上限也没有停，加大上限没有用。{ASK_OTHERWISE}"
    if reason or status == "incomplete":
        where = f"incomplete：{_printable(str(reason or '原因不明'))[:99]}"
    elif caps and (reached or (not items and not used)):
        where = f"max_output_tokens={min(caps)}"
    elif any(item.get("status") == "incomplete" for item in items if item.get("type") != "reasoning"):
        where = "输出项 incomplete"
    elif kind := foreign_call(items):
        return f"模型发起了 {_printable(kind)[:99]}，这里只能执行 function_call。请在服务器上关掉这类工具后重试。"
    else:
        return None
    return f"输出没有写完（{where}），不是完整的回答。{_RAISE_CAP}"


def parse_function_calls(output: list[JsonObject], usage: object = None) -> list[FunctionCall]:
    """The tool calls in order, each with its arguments, which are a JSON string or already the object.

    usage: that of a response which is whole (unfinished found nothing). With it, JSON that stops in the middle
    is known to be the model's doing, not that of a cap. Nothing is guessed. Raises ProtocolError for anything
    else than a name, a call_id of its own and one object of strict JSON; CutOffCallError when the JSON stops
    in the middle.
    """
    calls: dict[str, FunctionCall] = {}
    for item in output:
        if item.get("type") != "function_call":
            continue
        for key in ("name", "call_id"):
            if not isinstance(item.get(key), str) or not item[key].strip():
                raise ProtocolError(f"工具调用缺少 {key}。{_CHECK_PARSER}")
        name, call_id = _printable(item["name"]), item["call_id"]
        if call_id != _printable(call_id) or call_id in calls:
            raise ProtocolError(f"call_id {call_id!r:.99} 重复或无法回放，结果无法配对。{_CHECK_PARSER}")
        advice = _CHECK_PARSER if isinstance(usage, dict) and usage.get("output_tokens") else _RAISE_CAP
        arguments = _arguments(repr(name)[:99], item.get("arguments"), advice)
        calls[call_id] = FunctionCall(name, call_id, arguments)
    return list(calls.values())


def _arguments(name: str, given: Any, if_cut: str) -> dict[str, Any]:
    try:
        value = strict_json(given) if isinstance(given, str) else given
    except json.JSONDecodeError as error:
        at_end = error.msg.startswith("Unterminated") or re.fullmatch(r"[\w.+-]{0,5}\s*", given[error.pos :])
        if at_end and error.msg != "Extra data" and given.lstrip().startswith("{"):
            raise CutOffCallError(f"对 {name} 的调用在参数中间断开，没有执行。{if_cut}") from None
        raise ProtocolError(f"对 {name} 的调用，参数不是一个 JSON 对象：{error}。{_CHECK_PARSER}") from None
    except ProtocolError as error:
        raise ProtocolError(f"对 {name} 的调用，参数不是严格的 JSON：{error}{_CHECK_PARSER}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"对 {name} 的调用，参数不是一个 JSON 对象。{_CHECK_PARSER}")
    return {_printable(key): _printable(item) for key, item in value.items()}
