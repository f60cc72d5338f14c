"""From the environment to a client and a loop configuration: what the examples and the chat share.

QWEN_BASE_URL           http://127.0.0.1:8021, with or without /v1
QWEN_MODEL              the local model of `python3 -m packages.qianchat serve`
QWEN_REASONING          none: sent as reasoning.effort; empty: not sent
QWEN_MAX_OUTPUT_TOKENS  2048; 800 for the local model, which writes 10 to 20 a second
QWEN_TIMEOUT            120: seconds for a request; of a stream, for each silence in it
QWEN_API_KEY            none; sent to QWEN_BASE_URL's origin only
"""

from __future__ import annotations

import math
import os
import re
import sys
from typing import Any

from ..pi_agent import AgentLoopConfig
from ..pi_ai import MiniPiError, ModelRequestError, ResponsesClient
from .server.local_qwen import LOCAL_MODEL

BASE_URL = "http://127.0.0.1:8021"
TIMEOUT_SECONDS = 120.0
# An answer that does not end must reach its cap before the timeout: 800 tokens at 10 a second take 80 seconds.
MAX_OUTPUT_TOKENS, LOCAL_MAX_OUTPUT_TOKENS = 2048, 800

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


def timeout() -> float:
    """Seconds that the environment allows a request. Raises MiniPiError for what is no such number."""
    text = os.environ.get("QWEN_TIMEOUT") or str(TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 1e9:
        raise MiniPiError(f"QWEN_TIMEOUT 必须是正的秒数，收到 {text[:50]!r}。请改正后重试。")
    return seconds


def model_name() -> str:
    """The model in the environment, else the local one."""
    return os.environ.get("QWEN_MODEL") or LOCAL_MODEL


def request_options() -> dict[str, Any]:
    """The optional fields of every request. Raises MiniPiError for a bad environment variable."""
    cap = LOCAL_MAX_OUTPUT_TOKENS if model_name() == LOCAL_MODEL else MAX_OUTPUT_TOKENS
    text = os.environ.get("QWEN_MAX_OUTPUT_TOKENS") or str(cap)
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise MiniPiError(f"QWEN_MAX_OUTPUT_TOKENS 必须是正整数，收到 {text[:50]!r}。请改正后重试。")
    options: dict[str, Any] = {"max_output_tokens": int(text), "temperature": 0}
    effort = os.environ.get("QWEN_REASONING", "none")
    if effort:
        options["reasoning"] = {"effort": effort}
    if effort not in ("", "none"):  # nothing is stored, so reasoning comes back only if it is handed over
        options["include"] = ["reasoning.encrypted_content"]
    return options


def connect(max_turns: int = 8, *, stream: bool = False) -> tuple[ResponsesClient, AgentLoopConfig]:
    """Client and configuration as the environment says. Raises MiniPiError."""
    client = ResponsesClient(base_url(), api_key(), timeout(), on_wait=_tell_wait)
    model = model_name()
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


def _tell_wait(seconds: float, error: ModelRequestError) -> None:
    """A terminal is told why nothing happens; a script's stderr stays for errors."""
    if sys.stderr.isatty():
        status = "服务器忙" if error.status is None else f"服务器忙（HTTP {error.status}）"
        print(f"{status}，{seconds:.0f} 秒后再问……", file=sys.stderr, flush=True)
