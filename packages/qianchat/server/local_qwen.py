"""A real Qwen on this machine: find or install what it needs, start it, wait until it answers, stop it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...pi_ai import MiniPiError

if TYPE_CHECKING:
    from .child import Child

LOCAL_MODEL = "qwen2.5-coder-1.5b-instruct"
DEFAULT_PORT = 8021
DEFAULT_CONTEXT = 8192

# Qwen's own template makes llama-server report none of this model's calls; see checks/model_tasks.md.
_TEMPLATE = Path(__file__).with_name("qwen2.5-coder.jinja")
_LOAD_SECONDS = 600.0

# Passed where the program knows them: no web page may use the model from a browser, no web interface,
# nothing fetched from the network, and 512 MiB instead of 8 GiB for the states of earlier conversations.
_EXTRA_FLAGS = (
    ("--cors-origins", "localhost"),
    ("--no-webui",),
    ("--offline",),
    ("--cache-ram", "512"),
)


@dataclass(frozen=True)
class LocalServer:
    """A healthy llama-server that belongs to us. ctx: its context in tokens; log: its output."""

    base_url: str
    model: str
    ctx: int
    log: Path
    child: Child


@contextmanager
def local_qwen(base_url: str = f"http://127.0.0.1:{DEFAULT_PORT}") -> Iterator[str]:
    """Use the model server that already answers at base_url, else start one there and stop it at the end.

    Yields base_url; what is done is said on stderr. Raises MiniPiError when base_url is not a port of
    this machine, when something else answers there, or when the server cannot be installed or started.
    """
    from .port import occupant

    host, port = _local_address(base_url)
    found = occupant(host, port)
    if found and found.loading:
        _say(f"{base_url} 上的 {found.description}，等它就绪……")
        deadline = time.monotonic() + _LOAD_SECONDS
        while found and found.loading and time.monotonic() < deadline:
            time.sleep(0.5)
            found = occupant(host, port)
    if found and found.healthy:
        _say(f"使用 {base_url} 上已在运行的{found.description}。")
        yield base_url
        return
    with start_server(port):
        yield base_url


@contextmanager
def start_server(
    port: int = DEFAULT_PORT,
    *,
    gguf: Path | None = None,
    llama_server: Path | None = None,
    ctx: int = DEFAULT_CONTEXT,
    threads: int | None = None,
) -> Iterator[LocalServer]:
    """Run llama-server on 127.0.0.1:port, yield it once it is healthy, and end it on leaving the block.

    gguf and llama_server default to the cache's, installed if need be. threads: None leaves the choice
    to llama-server. Raises MiniPiError, whose message has at most three lines.
    """
    # What installs and runs programs is imported by those who do so: connection.py needs one name from here.
    from .cache import cache_dir, log_file
    from .child import Child
    from .llama_server import find_llama_server
    from .model import QWEN, installed_model, is_model
    from .prefix import folder_flags, prepare, state_name

    _require_free(port)
    cache = cache_dir()
    try:
        program = find_llama_server(cache, llama_server)
        path = _checked_gguf(gguf) if gguf else installed_model(cache, QWEN)
        ours = is_model(path, QWEN)
        log = log_file(cache, f"llama-server-{port}.log")
    except OSError as error:
        raise MiniPiError(
            f"本机 Qwen 没有准备好：{error}。\n"
            "请检查缓存目录的权限和剩余空间，或用环境变量 MINI_PI_CACHE 换一个目录。"
        ) from error
    model = LOCAL_MODEL if ours else path.stem.lower()
    command = [str(program.path), "--model", str(path), "--alias", model, "--jinja"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    # One slot: the whole context belongs to one conversation, and requests at once wait in line.
    command += ["--ctx-size", str(ctx), "--parallel", "1"]
    if threads is not None:
        command += ["--threads", str(threads)]
    states: list[str] = []
    if ours:
        states = folder_flags(cache, program.help)
        command += ["--chat-template-file", str(_TEMPLATE), *states]
    for flag in _EXTRA_FLAGS:
        if flag[0] in program.help:
            command += flag
    # With GNU OpenMP's default, threads that spin at each barrier, one other busy process on two cores
    # slows a token from 0.07 s to 1.7 s; sleeping at them, to 0.2 s.
    env = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}
    with Child(command, log, env) as child:
        _wait_until_healthy(child, port, log)
        if states:
            question = _first_question(model)
            prepare(
                port, cache, state_name(QWEN.sha256, _TEMPLATE.read_bytes(), program.path, question), question
            )
        yield LocalServer(f"http://127.0.0.1:{port}", model, ctx, log, child)


def _first_question(model: str) -> dict[str, Any]:
    """A request that begins as those of the examples and the chat do."""
    from ...pi_agent.history import user_item
    from ...pi_coding_agent.tools import ProjectFiles, create_project_tools
    from ..connection import INSTRUCTIONS

    return {
        "model": model,
        "instructions": INSTRUCTIONS,
        "tools": [tool.schema() for tool in create_project_tools(ProjectFiles(".", 1))],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "store": False,
        "max_output_tokens": 1,
        "temperature": 0,
        "reasoning": {"effort": "none"},
        "input": [user_item("。")],
    }


def exit_error(status: int, log: Path) -> MiniPiError:
    """The error for a llama-server that ended by itself."""
    from .cache import shown
    from .child import last_words

    end = f"被信号 {status - 128} 终止" if status > 128 else f"退出码 {status}"
    return MiniPiError(
        f"llama-server 自己退出了（{end}）：{last_words(log)}\n"
        f"完整输出在{shown(log)}。\n"
        "内存不足就换小一点的 --ctx 或模型；参数不被认识就换新一点的 llama-server。"
    )


def _wait_until_healthy(child: Child, port: int, log: Path) -> None:
    """Until the model is loaded, requests get 503, so nobody is let in before /health says ok."""
    from .cache import shown
    from .port import occupant, request

    _say("起动 llama-server，载入模型……")
    deadline = time.monotonic() + _LOAD_SECONDS
    found = None
    while not (found and found.healthy):
        status = child.wait(0.25)
        if status is not None:
            raise exit_error(status, log)
        if time.monotonic() > deadline:
            raise MiniPiError(
                f"llama-server 在 {_LOAD_SECONDS:.0f} 秒内没有就绪，已停止它。\n"
                f"请看{shown(log)}，或换小一点的模型。"
            )
        found = occupant("127.0.0.1", port)
    if request("127.0.0.1", port, "POST", "/v1/responses", timeout=30, body="{}")[0] == 404:
        raise MiniPiError(
            "这个 llama-server 没有 /v1/responses 接口，太旧了。\n"
            "请换新的版本，或去掉 --llama-server 和 QWEN_LLAMA_SERVER、从 PATH 移走它，由程序自己编译一个。"
        )


def _require_free(port: int) -> None:
    """Raise MiniPiError that says who has the port and what to do; llama-server itself would not."""
    import errno
    import socket

    from .port import occupant

    found = occupant("127.0.0.1", port)
    if found is None:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except PermissionError:
                raise MiniPiError(f"没有权限使用端口 {port}。请用 --port 换一个 1024 以上的端口。") from None
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise MiniPiError(f"不能使用端口 {port}：{error}。请用 --port 换一个端口。") from None
                raise MiniPiError(
                    f"端口 {port} 已被一个没有应答的程序占用。请用 --port 换一个端口，或先停掉它。"
                ) from None
        return
    use_it = f"直接用它：export QWEN_BASE_URL=http://127.0.0.1:{port}；或" if found.healthy else ""
    raise MiniPiError(
        f"端口 {port} 已被占用：{found.description}。\n{use_it}"
        "先停掉它，或换一个端口（serve 用 --port，例子和对话用 QWEN_BASE_URL）。"
    )


def _checked_gguf(path: Path) -> Path:
    from .cache import expanded

    path = expanded(path, "--gguf").absolute()
    try:
        if path.is_dir():
            raise MiniPiError(f"--gguf 指定的 {path} 是目录。请写出其中的 .gguf 模型文件。")
        if not path.is_file():
            what = "不是普通文件" if path.exists() else "不存在"
            raise MiniPiError(f"--gguf 指定的文件{what}：{path}。请检查路径，或去掉 --gguf，由程序下载模型。")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise MiniPiError(f"{path.name} 不是 GGUF 文件（开头不是 GGUF）。请换成 .gguf 模型文件。")
    except OSError as error:
        raise MiniPiError(
            f"--gguf 指定的 {path} 不能读取：{error.strerror}。请检查它的权限，或换一个文件。"
        ) from None
    return path


def _local_address(base_url: str) -> tuple[str, int]:
    """Host and port of a base URL that we could serve ourselves."""
    try:
        url = urlsplit(base_url)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if port is None or url.scheme != "http" or host not in ("127.0.0.1", "localhost"):
        raise MiniPiError(
            f"--local-qwen 只能在本机的端口上起动模型，QWEN_BASE_URL 却是 {base_url}。\n"
            f"请把它设成 http://127.0.0.1:{DEFAULT_PORT} 这样带端口的地址，或去掉 --local-qwen。"
        )
    return host, port


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
