"""The agent loop: one page, to be read from top to bottom; run_agent is the whole of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..pi_ai import (
    AgentRunError,
    FunctionCall,
    JsonObject,
    MiniPiError,
    ProtocolError,
    output_text,
    parse_function_calls,
    response_output,
    unfinished,
)
from .answer import final_answer
from .tools import AgentTool, ToolResult

Usage = list[JsonObject | None]


class ModelClient(Protocol):
    """Whatever answers a Responses request: payload in, the complete response object out.

    With AgentLoopConfig(stream=True), and only then, it is also given on_text=callable.
    """

    def create(self, payload: JsonObject) -> JsonObject: ...


@dataclass(frozen=True)
class AgentLoopConfig:
    """How a run asks its model.

    max_turns: model requests per question. request_options: further fields of the request, such as
    max_output_tokens (tokens) or temperature; None is not sent. required_tool_names: tools that must
    succeed, in this order, before the model may choose. required_tool_choice: how that is told to the
    server; "required" is understood by all that we know, "named" sends the object of OpenAI's protocol.
    answer_after_repeat: the request after a call that repeats an earlier successful one offers no
    tools, since small models otherwise repeat themselves until the turns are used up.
    stream: text arrives as text_delta events while it is made.
    """

    model: str
    instructions: str
    max_turns: int = 8
    required_tool_names: tuple[str, ...] = ()
    request_options: Mapping[str, Any] = field(default_factory=dict)
    required_tool_choice: Literal["required", "named"] = "required"
    answer_after_repeat: bool = False
    stream: bool = False


@dataclass(frozen=True)
class AgentEvent:
    """Something to watch; the history is what counts. Fields that a type has no use for are None."""

    type: Literal["assistant_text", "text_delta", "tool_call", "tool_result", "turn_end"]
    turn: int
    text: str | None = None
    call: FunctionCall | None = None
    result: ToolResult | None = None
    usage: JsonObject | None = None


EventSink = Callable[[AgentEvent], None]


def run_agent(
    client: ModelClient,
    tools: Sequence[AgentTool],
    config: AgentLoopConfig,
    question: str,
    emit: EventSink | None = None,
    *,
    history: list[JsonObject] | None = None,
) -> str:
    """Put a question to the model, run the tools it asks for, and return its answer.

    1. The question joins the history.
    2. Each turn is one model request that carries the whole history.
    3. A response that is half a product (cut off, refused, failed) ends the run with an error.
    4. The output items join the history as they came, before anything else is added.
    5. Without a tool call, the text is the answer; with none, the run has failed.
    6. With calls, each runs in order and its result joins the history under its call_id.
    7. Then the next turn begins; when the turns are used up, the run has failed.

    history: the list to continue and to grow in place (Conversation passes its own); else a new one.
    However the run ends, every call in it has exactly one output, so it can be sent again.

    Raises MiniPiError before any request for refused settings, then AgentRunError for a run without
    an answer, ModelRequestError and ProtocolError from the client; each names the turn and carries
    history, turn and usage. What emit or a handler's bug raises passes through.
    """
    tools_by_name = check_settings(tools, config)
    emit = emit or (lambda event: None)
    history = [] if history is None else history
    usage: Usage = []
    pending = list(config.required_tool_names)
    succeeded: set[str] = set()
    repeated = False

    history.append(_user_item(question))
    for turn in range(1, config.max_turns + 1):
        with _turn(turn, history, usage, emit):
            request = _request(config, tools_by_name, history, pending, repeated)
            response = _create(client, request, config, turn, emit)
            usage.append(_usage_of(response))
            output = response_output(response)
            reason = unfinished(response, output, config.request_options.get("max_output_tokens"))
            if reason is not None:
                history.extend(_replayable(output))
                raise AgentRunError(reason)
            calls = parse_function_calls(output)
            history.extend(output)

            text = output_text(output, response)
            if text:
                emit(AgentEvent("assistant_text", turn, text=text))
            if not calls:
                return final_answer(text, pending, tools_by_name)

            repeated = False
            for call in calls:
                emit(AgentEvent("tool_call", turn, call=call))
                result = _execute(tools_by_name, call)
                history.append(_output_item(call.call_id, result.content))
                emit(AgentEvent("tool_result", turn, call=call, result=result))
                if not result.is_error:
                    repeated |= config.answer_after_repeat and _key(call) in succeeded
                    succeeded.add(_key(call))
                    if pending and call.name == pending[0]:
                        pending.pop(0)

    error = AgentRunError(
        f"达到最大轮数 {config.max_turns}，模型仍未给出最终回答。可以调大 max_turns（--max-turns）后重试。"
    )
    error.during_turn(config.max_turns, list(history), usage)
    raise error


@contextmanager
def _turn(turn: int, history: list[JsonObject], usage: Usage, emit: EventSink) -> Iterator[None]:
    """End a turn once, however it ends: calls paired, an error told where it happened, usage emitted."""
    try:
        yield
    except MiniPiError as error:
        close_open_calls(history)
        usage.extend([None] * (turn - len(usage)))
        error.during_turn(turn, list(history), usage)
        emit(AgentEvent("turn_end", turn, usage=usage[-1]))
        raise
    except BaseException:
        close_open_calls(history)
        raise
    emit(AgentEvent("turn_end", turn, usage=usage[-1]))


def _request(
    config: AgentLoopConfig,
    tools_by_name: Mapping[str, AgentTool],
    history: list[JsonObject],
    pending: Sequence[str],
    repeated: bool,
) -> JsonObject:
    """One turn's payload. Its head stays the same from turn to turn and the history comes last, so
    that the server's prefix cache holds."""
    offered = list(tools_by_name)
    tool_choice: str | JsonObject = "auto"
    if pending:
        offered = [pending[0]]
        named = {"type": "function", "name": pending[0]}
        tool_choice = named if config.required_tool_choice == "named" else "required"
    elif repeated:
        offered, tool_choice = [], "none"
    options = {name: value for name, value in config.request_options.items() if value is not None}
    return {
        "model": config.model,
        "instructions": config.instructions,
        "tools": [tools_by_name[name].schema() for name in offered],
        "tool_choice": tool_choice,
        "parallel_tool_calls": False,
        "store": False,
        **options,
        "input": history,
    }


RESERVED = (
    "model",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "store",
    "stream",
)


def check_settings(tools: Sequence[AgentTool], config: AgentLoopConfig) -> dict[str, AgentTool]:
    """Return the tools by name, or raise MiniPiError for what no request should be sent with."""
    tools_by_name = {tool.name: tool for tool in tools}
    if len(tools_by_name) < len(tools):
        names = [tool.name for tool in tools]
        twice = "、".join(sorted({name for name in names if names.count(name) > 1}))
        raise MiniPiError(f"工具重名：{twice}。请给每个工具不同的名字。")
    unknown = [name for name in config.required_tool_names if name not in tools_by_name]
    if unknown:
        raise MiniPiError(f"必选工具未注册：{'、'.join(unknown)}。请先把它加进 tools。")
    reserved = [name for name in RESERVED if name in config.request_options]
    if reserved:
        raise MiniPiError(f"request_options 不能覆盖 Agent 核心字段：{'、'.join(reserved)}。请去掉它们。")
    if isinstance(config.max_turns, bool) or not isinstance(config.max_turns, int) or config.max_turns < 1:
        raise MiniPiError(f"max_turns 必须是不小于 1 的整数，收到 {config.max_turns!r}。")
    if config.required_tool_choice not in ("required", "named"):
        raise MiniPiError(
            f"required_tool_choice 只能是 required 或 named，收到 {config.required_tool_choice!r}。"
        )
    return tools_by_name


def _create(
    client: ModelClient, request: JsonObject, config: AgentLoopConfig, turn: int, emit: EventSink
) -> JsonObject:
    if not config.stream:
        return client.create(request)
    show: Any = lambda delta: emit(AgentEvent("text_delta", turn, text=delta))  # noqa: E731
    return client.create(request, on_text=show)  # type: ignore[call-arg]


def _execute(tools_by_name: Mapping[str, AgentTool], call: FunctionCall) -> ToolResult:
    tool = tools_by_name.get(call.name)
    if tool is None:
        known = "、".join(tools_by_name) or "（无）"
        return ToolResult(f"未知工具：{call.name}。可用的工具：{known}。", is_error=True)
    return tool.execute(call.arguments)


def open_calls(history: Sequence[JsonObject]) -> list[str]:
    """The call_ids that have no output yet. Paired in order, since some servers use an id again."""
    waiting: list[str] = []
    for item in history:
        if item.get("type") == "function_call":
            waiting.append(item["call_id"])
        elif item.get("type") == "function_call_output" and item["call_id"] in waiting:
            waiting.remove(item["call_id"])
    return waiting


def close_open_calls(history: list[JsonObject]) -> None:
    """Give each call left without an output one that says so: servers refuse a history with a gap."""
    for call_id in open_calls(history):
        history.append(_output_item(call_id, "这次调用没有完成：运行被中断，结果未知。"))


def _replayable(output: list[JsonObject]) -> list[JsonObject]:
    """Nothing of a response with half a call: servers answer HTTP 500 whenever it is sent again."""
    try:
        parse_function_calls(output)
    except ProtocolError:
        return []
    return output


def _user_item(question: str) -> JsonObject:
    return {"role": "user", "content": [{"type": "input_text", "text": question}]}


def _output_item(call_id: str, output: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _key(call: FunctionCall) -> str:
    return call.name + json.dumps(call.arguments, sort_keys=True)


def _usage_of(response: JsonObject) -> JsonObject | None:
    usage = response.get("usage") if isinstance(response, dict) else None
    return usage if isinstance(usage, dict) else None
