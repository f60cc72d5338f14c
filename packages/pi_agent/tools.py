"""A tool in two halves: what the model is told about it, and the function that runs here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..pi_ai import MiniPiError, ToolError
from .schema import fitted, problems

ToolHandler = Callable[[Mapping[str, Any]], str]

PROBLEMS_SAID = 10


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
        schema = {"type": "object", **self.parameters}
        try:
            return not any(problems(arguments, schema, schema))
        except RecursionError:  # nested deeper than any call
            return False

    def execute(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments, then run the handler. Failures that a handler is meant to have become
        an error result that the model reads; a bug in it (TypeError, KeyError, …) propagates.

        A declared schema binds no model, so the arguments are checked here again (article, part 3).
        """
        try:
            _check(arguments, schema := {"type": "object", **self.parameters})
            content = self.handler(fitted(arguments, schema, schema))
        except (MiniPiError, OSError, RuntimeError, ValueError) as error:
            return ToolResult(str(error) or type(error).__name__, is_error=True)
        if not isinstance(content, str):
            raise TypeError(f"工具 {self.name} 的 handler 必须返回 str，却返回了 {type(content).__name__}")
        return ToolResult(content)


def _check(arguments: Any, schema: Mapping[str, Any]) -> None:
    found = list(islice(problems(arguments, schema, schema), PROBLEMS_SAID + 1))
    if found:
        received = json.dumps(arguments, ensure_ascii=False, default=repr)[:500]
        more = "；……" if len(found) > PROBLEMS_SAID else ""
        said = "；".join(found[:PROBLEMS_SAID]) + more
        raise ToolError(f"参数不符合要求：{said}。收到的参数：{received}。请改正后重新调用。")
