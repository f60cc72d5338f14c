"""The agent loop: one page, to be read from top to bottom; run_agent is the whole of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from ..pi_ai import (
    AgentRunError,
    FunctionCall,
    JsonObject,
    MiniPiError,
    ProtocolError,
    goes_on,
    output_text,
    parse_function_calls,
    spoken_text,
    unfinished,
)
from .answer import after_all_turns, final_answer
from .config import AgentLoopConfig, check_settings
from .history import close_open_calls, items_of, output_item, replayable, user_item
from .tools import AgentTool, ToolResult

Usage = list[JsonObject | None]


class ModelClient(Protocol):
    """Whatever answers a Responses request: payload in, the complete response object out.

    With AgentLoopConfig(stream=True), and only then, it is also given on_text=callable.
    """

    def create(self, payload: JsonObject) -> JsonObject: ...


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
    5. Without a tool call, the text is the answer; with none, the run has failed. `end_turn: false` is no end.
    6. With calls, each runs in order and its result joins the history under its call_id.
    7. Then the next turn begins; when the turns are used up, the run has failed.

    history: the list to continue and to grow in place (Conversation passes its own); else a new one.
    However the run ends, every call in it has exactly one output, so it can be sent again.

    Raises MiniPiError before any request for refused settings, then AgentRunError for a run without
    an answer, ModelRequestError and ProtocolError from the client; each names the turn and carries
    history, turn and usage. What emit or a handler's bug raises passes through.
    """
    tools_by_name = check_settings(tools, config)
    if not isinstance(question, str) or not question.strip():
        raise MiniPiError(f"问题必须是非空的字符串，收到 {question!r}。请写出要问的话。")
    emit = emit or (lambda event: None)
    history = [] if history is None else history
    usage: Usage = []
    pending = list(config.required_tool_names)
    succeeded: set[tuple[str, str]] = set()
    repeated = False

    history.append(user_item(question))
    for turn in range(1, config.max_turns + 1):
        with _turn(turn, history, usage, emit):
            request = _request(config, tools_by_name, history, pending, repeated)
            response = _response(client, request, config, turn, emit)
            usage.append(response["usage"] if isinstance(response.get("usage"), dict) else None)
            output = items_of(response)
            reason = unfinished(response, output, config.request_options.get("max_output_tokens"))
            if reason is not None:
                history.extend(replayable(output))
                raise AgentRunError(reason)
            calls = parse_function_calls(output, usage[-1])
            history.extend(replayable(output))

            spoken = spoken_text(output, response)
            if spoken.strip():
                emit(AgentEvent("assistant_text", turn, text=spoken))
            if not calls and not goes_on(response, output):
                return final_answer(output_text(output, response), pending, tools_by_name)

            repeated = False
            for call in calls:
                emit(AgentEvent("tool_call", turn, call=call))
                key = (call.name, json.dumps(call.arguments, sort_keys=True))
                result = _execute(tools_by_name, call)
                history.append(output_item(call.call_id, result.content))
                emit(AgentEvent("tool_result", turn, call=call, result=result))
                if not result.is_error:
                    repeated |= key in succeeded
                    succeeded.add(key)
                    if pending and call.name == pending[0]:
                        pending.pop(0)

    error = AgentRunError(
        f"达到最大轮数 {config.max_turns}，模型仍未给出最终回答。{after_all_turns(history)}"
    )
    error.during_turn(config.max_turns, list(history), usage)
    raise error


@contextmanager
def _turn(turn: int, history: list[JsonObject], usage: Usage, emit: EventSink) -> Iterator[None]:
    """However a turn ends: its calls are paired, an error tells where it happened, turn_end comes once."""
    try:
        yield
    except BaseException as error:
        close_open_calls(history)
        if isinstance(error, MiniPiError):
            error.during_turn(turn, list(history), usage)
        raise
    finally:
        usage.extend([None] * (turn - len(usage)))
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
    elif repeated and config.answer_after_repeat:
        offered = []
    return {
        "model": config.model,
        "instructions": config.instructions,
        "tools": [tools_by_name[name].schema() for name in offered],
        **({"tool_choice": tool_choice, "parallel_tool_calls": False} if offered else {}),
        "store": False,
        **{name: value for name, value in config.request_options.items() if value is not None},
        "input": history,
    }


def _response(
    client: ModelClient, request: JsonObject, config: AgentLoopConfig, turn: int, emit: EventSink
) -> JsonObject:
    def show(delta: str) -> None:
        emit(AgentEvent("text_delta", turn, text=delta))

    streamed = {"on_text": show} if config.stream else {}
    response: object = client.create(request, **streamed)
    if not isinstance(response, dict):
        raise ProtocolError(f"client.create 返回了 {type(response).__name__}。请返回完整的响应对象（dict）。")
    return response


def _execute(tools_by_name: Mapping[str, AgentTool], call: FunctionCall) -> ToolResult:
    tool = tools_by_name.get(call.name)
    if tool is None:
        known = "、".join(tools_by_name) or "（无）"
        return ToolResult(f"未知工具：{call.name}。可用的工具：{known}。", is_error=True)
    return tool.execute(call.arguments)
