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
    foreign_call,
    goes_on,
    output_text,
    parse_function_calls,
    response_output,
    spoken_text,
    unfinished,
)
from .thinking import answer_so_far, without_thinking

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
    "answer_so_far",
    "foreign_call",
    "goes_on",
    "output_text",
    "parse_function_calls",
    "response_output",
    "spoken_text",
    "strict_json",
    "unfinished",
    "without_thinking",
]
