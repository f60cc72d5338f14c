"""What a run is set to, and which settings no request should be sent with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..pi_ai import MiniPiError
from .schema import flaws
from .tools import AgentTool

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


def check_settings(tools: Sequence[AgentTool], config: AgentLoopConfig) -> dict[str, AgentTool]:
    """Return the tools by name. Raises MiniPiError that lists every setting to be put right."""
    if not all(isinstance(tool, AgentTool) and _is_declared(tool) for tool in tools):
        raise MiniPiError(
            "tools 里只能放 AgentTool：name 是非空字符串，description 是字符串，parameters 是 dict。请检查它们。"
        )
    for tool in tools:
        if found := "；".join(flaws(tool.parameters)):
            raise MiniPiError(f"工具 {tool.name} 的 parameters 不能用：{found}。请改正这份 JSON Schema。")
    if problems := "".join(_problems([tool.name for tool in tools], config)):
        raise MiniPiError(problems)
    return {tool.name: tool for tool in tools}


def _is_declared(tool: AgentTool) -> bool:
    kinds = (tool.name, str), (tool.description, str), (tool.parameters, dict)
    return all(isinstance(value, kind) for value, kind in kinds) and tool.name != ""


def _problems(names: Sequence[str], config: AgentLoopConfig) -> Iterator[str]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield f"工具重名：{'、'.join(twice)}。请给每个工具不同的名字。"
    if not isinstance(config.model, str) or not config.model.strip():
        yield f"model 必须是非空的模型名，收到 {config.model!r}。请检查 QWEN_MODEL。"
    if not isinstance(config.instructions, str):
        yield f"instructions 必须是字符串，收到 {config.instructions!r}。请写出给模型的要求。"
    if type(config.max_turns) is not int or config.max_turns < 1:
        yield f"max_turns 必须是不小于 1 的整数，收到 {config.max_turns!r}。请改正。"
    if isinstance(config.required_tool_names, str):
        yield f'required_tool_names 必须是工具名的序列，请写成 ("{config.required_tool_names}",)。'
    elif unknown := [name for name in config.required_tool_names if name not in names]:
        yield f"必选工具未注册：{'、'.join(unknown)}。请先把它加进 tools。"
    if config.required_tool_choice not in ("required", "named"):
        yield f"required_tool_choice 只能是 required 或 named，收到 {config.required_tool_choice!r}。请改正。"
    if not isinstance(config.request_options, Mapping):
        yield f"request_options 必须是 dict，收到 {config.request_options!r}。请改正。"
    elif reserved := [name for name in RESERVED if name in config.request_options]:
        yield f"request_options 不能覆盖 Agent 核心字段：{'、'.join(reserved)}。请去掉它们。"
