"""Tools and the loop. Knows no file and no HTTP."""

from .config import AgentLoopConfig
from .conversation import Conversation
from .loop import AgentEvent, EventSink, ModelClient, run_agent
from .tools import AgentTool, ToolHandler, ToolResult

__all__ = [
    "AgentEvent",
    "AgentLoopConfig",
    "AgentTool",
    "Conversation",
    "EventSink",
    "ModelClient",
    "ToolHandler",
    "ToolResult",
    "run_agent",
]
