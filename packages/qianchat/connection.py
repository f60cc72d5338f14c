"""From the environment to a client and a loop configuration: what the examples and the chat share.

QWEN_BASE_URL           http://127.0.0.1:8021, with or without /v1
QWEN_MODEL              the local model of `python3 -m packages.qianchat serve`
QWEN_REASONING          none: sent as reasoning.effort; empty: not sent
QWEN_MAX_OUTPUT_TOKENS  2048
QWEN_API_KEY            none; sent to QWEN_BASE_URL's origin only
"""

from __future__ import annotations

import os
import re
from typing import Any

from ..pi_agent import AgentLoopConfig
from ..pi_ai import MiniPiError, ResponsesClient
from .server.local_qwen import LOCAL_MODEL

BASE_URL = "http://127.0.0.1:8021"
TIMEOUT_SECONDS = 120.0

# Tuned on the real local Qwen: every wording that was tried, and what it gave, is in checks/model_tasks.md.
INSTRUCTIONS = """\
回答要以项目文件的内容为准，文件名不能猜：
- 问题里写明了完整的文件路径，就直接用 read_file 读取它。
- 否则先用 list_files 列出问题提到的目录（没有提到就列出 .），再读取列出的文件；以 / 结尾的是目录，要再列出它。"""


def base_url() -> str:
    """The server's address in the environment, else the local one."""
    return os.environ.get("QWEN_BASE_URL") or BASE_URL


def api_key() -> str | None:
    """The key in the environment; an empty one is none."""
    return os.environ.get("QWEN_API_KEY") or None


def request_options() -> dict[str, Any]:
    """The optional fields of every request. Raises MiniPiError for a bad environment variable."""
    text = os.environ.get("QWEN_MAX_OUTPUT_TOKENS") or "2048"
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise MiniPiError(f"QWEN_MAX_OUTPUT_TOKENS 必须是正整数，收到 {text[:50]!r}。请改正后重试。")
    options: dict[str, Any] = {"max_output_tokens": int(text), "temperature": 0}
    effort = os.environ.get("QWEN_REASONING", "none")
    return {**options, "reasoning": {"effort": effort}} if effort else options


def connect(max_turns: int = 8, *, stream: bool = False) -> tuple[ResponsesClient, AgentLoopConfig]:
    """Client and configuration as the environment says. Raises MiniPiError."""
    client = ResponsesClient(base_url(), api_key(), TIMEOUT_SECONDS)
    model = os.environ.get("QWEN_MODEL") or LOCAL_MODEL
    config = AgentLoopConfig(
        model=model,
        instructions=INSTRUCTIONS,
        max_turns=max_turns,
        request_options=request_options(),
        # Without it the 1.5B model repeats read_file until the turns are used up (checks/model_tasks.md).
        answer_after_repeat=model == LOCAL_MODEL,
        stream=stream,
    )
    return client, config
