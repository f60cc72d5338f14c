"""The model boundary: HTTP and the Responses protocol. Knows no tool and no loop."""

from .errors import (
    AgentRunError,
    ContextFullError,
    CutOffCallError,
    MiniPiError,
    ModelRequestError,
    ProtocolError,
    ToolError,
)
from .reading import JsonObject, strict_json
from .responses import (
    FunctionCall,
    ResponsesClient,
    output_text,
    parse_function_calls,
    response_output,
    unfinished,
)

__all__ = [
    "AgentRunError",
    "ContextFullError",
    "CutOffCallError",
    "FunctionCall",
    "JsonObject",
    "MiniPiError",
    "ModelRequestError",
    "ProtocolError",
    "ResponsesClient",
    "ToolError",
    "output_text",
    "parse_function_calls",
    "response_output",
    "strict_json",
    "unfinished",
]
