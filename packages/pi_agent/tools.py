"""A tool in two halves: what the model is told about it, and the function that runs here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..pi_ai import MiniPiError, ToolError

ToolHandler = Callable[[Mapping[str, Any]], str]

_TYPES: dict[str, Any] = {
    "object": Mapping,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


@dataclass(frozen=True)
class ToolResult:
    """What a call came to: the text that the model gets, and whether it tells of a failure."""

    content: str
    is_error: bool = False


@dataclass(frozen=True)
class AgentTool:
    """name, description and parameters (a JSON Schema object) go to the model, handler stays here."""

    name: str
    description: str
    parameters: dict[str, Any]
    handler: ToolHandler

    def schema(self) -> dict[str, Any]:
        """The declaration that the model sees, in the form of the Responses protocol."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": True,
        }

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the declaration allows these arguments."""
        return not any(_problems(arguments, {"type": "object", **self.parameters}, ""))

    def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments, then run the handler. Failures that a handler is meant to have become
        an error result that the model reads; a bug in it (TypeError, KeyError, …) propagates.

        A declared schema binds no model, so the arguments are checked here again (article, part 3).
        """
        try:
            _check(arguments, self.parameters)
            content = self.handler(arguments)
        except (MiniPiError, OSError, RuntimeError, ValueError) as error:
            return ToolResult(str(error) or type(error).__name__, is_error=True)
        if not isinstance(content, str):
            raise TypeError(f"工具 {self.name} 的 handler 必须返回 str，却返回了 {type(content).__name__}")
        return ToolResult(content)


def _check(arguments: Any, schema: Mapping[str, Any]) -> None:
    problems = "；".join(_problems(arguments, {"type": "object", **schema}, ""))
    if problems:
        received = json.dumps(arguments, ensure_ascii=False, default=repr)[:500]
        raise ToolError(f"参数不符合要求：{problems}。收到的参数：{received}。请改正后重新调用。")


def _problems(value: Any, schema: Any, where: str) -> Iterator[str]:
    """Say, one by one, what keeps value from fitting the part of JSON Schema that tools use."""
    if not isinstance(schema, Mapping):  # true and false are schemas as well
        return
    label = f"参数 {where}{_about(schema)}" if where else "参数"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is_a(value, name) for name in types):
        yield f"{label} 必须是 {' 或 '.join(types)}"
        return
    if "enum" in schema and not any(type(value) is type(x) and value == x for x in schema["enum"]):
        yield f"{label} 必须是其中之一：{json.dumps(schema['enum'], ensure_ascii=False)}"
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        yield f"{label} 不能少于 {schema['minLength']} 个字符"
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{where}[{index}]")
    if isinstance(value, Mapping):
        prefix, known = where and where + ".", schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"缺少参数 {prefix}{name}{_about(known.get(name, {}))}"
        for name, item in value.items():
            if name in known:
                yield from _problems(item, known[name], f"{prefix}{name}")
            elif schema.get("additionalProperties") is False:
                yield f"多余的参数 {prefix}{name}"


def _about(schema: Any) -> str:
    """What the tool's author wrote about a parameter says best how to fill it in."""
    return f"（{schema['description']}）" if isinstance(schema, Mapping) and schema.get("description") else ""


def _is_a(value: Any, name: str) -> bool:
    """True and False are no numbers, though Python counts them as int."""
    if isinstance(value, bool):
        return name == "boolean"
    return name != "boolean" and isinstance(value, _TYPES.get(name, object))
