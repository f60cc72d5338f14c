"""A tool in two halves: what the model is told about it, and the function that runs here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..pi_ai import MiniPiError

ToolHandler = Callable[[Mapping[str, Any]], str]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
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

    def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments, then run the handler. Failures that a handler is meant to have become
        an error result that the model reads; a bug in it (TypeError, KeyError, …) propagates.

        A declared schema binds no model, so the arguments are checked here again (article, part 3).
        """
        problems = list(_problems(arguments, self.parameters, ""))
        if problems:
            received = json.dumps(arguments, ensure_ascii=False, default=repr)[:500]
            listed = "；".join(problems)
            return ToolResult(f"参数不符合要求：{listed}。收到的参数：{received}。请改正后重新调用。", True)
        try:
            content = self.handler(arguments)
        except (MiniPiError, OSError, RuntimeError, ValueError) as error:
            return ToolResult(str(error) or type(error).__name__, is_error=True)
        if not isinstance(content, str):
            raise TypeError(f"工具 {self.name} 的 handler 必须返回 str，却返回了 {type(content).__name__}")
        return ToolResult(content)


def _problems(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Say, one by one, what keeps value from fitting the part of JSON Schema that tools use."""
    label = f"参数 {where}" if where else "参数"
    allowed = schema.get("type", [])
    allowed = [allowed] if isinstance(allowed, str) else allowed
    if allowed and not any(_is_a(value, name) for name in allowed):
        yield f"{label} 必须是 {' 或 '.join(allowed)}"
        return
    if "enum" in schema and not any(type(value) is type(x) and value == x for x in schema["enum"]):
        yield f"{label} 必须是其中之一：{json.dumps(schema['enum'], ensure_ascii=False)}"
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        hint = "，根目录请用 ." if where == "path" else ""
        yield f"{label} 不能少于 {schema['minLength']} 个字符{hint}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, schema.get("items", {}), f"{where}[{index}]")
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"缺少参数 {where and where + '.'}{name}"
        for name, item in value.items():
            inner = f"{where}.{name}" if where else name
            if name in properties:
                yield from _problems(item, properties[name], inner)
            elif schema.get("additionalProperties") is False:
                yield f"多余的参数 {inner}"


def _is_a(value: Any, name: str) -> bool:
    """True and False are no numbers, though Python counts them as int."""
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, Mapping):
        return name == "object"
    return isinstance(value, _TYPES.get(name, (object,)))
