"""The chat in a terminal: questions about a project's files that build on each other."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ...pi_agent import Conversation
from ...pi_ai import JsonObject, MiniPiError
from ...pi_coding_agent.tools import ProjectFiles, create_project_tools
from ..connection import api_key, base_url, connect
from ..record import Recorder, check_writable, command_line, write_record
from ..server.local_qwen import local_qwen
from ..terminal import ended_by_signals, lost_output, one_line, printable, short_error, soft_streams
from .lines import PipedLines, TerminalLines
from .screen import Screen

MAX_FILE_BYTES = 32 * 1024
PROMPT = "问题> "
ABOUT = "在终端里就一个项目的文件连续提问。标准输入不是终端时，每行一个问题，依次回答。"
EPILOG = (
    "连接由环境变量决定：QWEN_BASE_URL、QWEN_MODEL、QWEN_REASONING、QWEN_MAX_OUTPUT_TOKENS、QWEN_API_KEY。"
    "退出码：0 正常；1 出错，或（不在终端里时）有问题或命令没有成功；2 用法不对；130 Ctrl-C。"
)
HELP = """\
/files [目录]  列出项目里的文件
/usage         用了多少 token
/save [FILE]   保存对话，用 --resume FILE 接着谈；省略 FILE 就存回原来的文件
/forget        撤回最后一问，没有答成的也算
/reset         忘掉整个对话，重新开始
/quit          离开，和 Ctrl-D 一样
Ctrl-C 停止回答，连按两次离开。其余每一行都是一个问题。"""


def add_chat(parser: argparse.ArgumentParser) -> None:
    """The flags of `chat`."""
    parser.description, parser.epilog = ABOUT, EPILOG
    add = parser.add_argument
    add("--project", type=Path, default=Path(), metavar="DIR", help="项目目录（默认当前目录）")
    add("--resume", type=Path, metavar="FILE", help="接着谈 /save 保存的对话")
    add("--local-qwen", action="store_true", help="没有服务时，在本机起动一个真实的 Qwen")
    add("--record", type=Path, metavar="FILE", help="把这次对话的完整记录写成 JSON")
    parser.set_defaults(run=main)


def main(args: argparse.Namespace) -> int:
    """Chat until the input ends, and return the exit status that EPILOG tells. Errors go to stderr."""
    soft_streams()
    try:
        with ended_by_signals():
            status = _chat(args)
            print(end="", flush=True)
        return status
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("已中断。", file=sys.stderr)
        return 130
    except OSError as error:
        lost_output(error)
        return 1


def _chat(args: argparse.Namespace) -> int:
    if args.record:
        check_writable(args.record)
    with ProjectFiles(args.project, MAX_FILE_BYTES) as files:
        chat = Chat(files, args.resume)
        with local_qwen(base_url()) if args.local_qwen else nullcontext():
            try:
                return chat.run()
            finally:
                if args.record:
                    write_record(args.record, chat.document(), api_key())


class Chat:
    """A conversation at a prompt. Raises MiniPiError when the environment or the file to resume is no good."""

    def __init__(self, files: ProjectFiles, resume: Path | None = None) -> None:
        client, config = connect(stream=True)
        self._files, self._model = files, config.model
        self._recorder, self._screen = Recorder(client), Screen()
        self._parts = self._recorder, create_project_tools(files), config, self._screen
        self._interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._lines = TerminalLines() if self._interactive else PipedLines()
        self._entered: list[str] = []
        self._runs: list[JsonObject] = []
        self._reset()
        if resume:
            self._conversation = Conversation.load(resume, *self._parts)
        self._saved = resume  # the file that holds this conversation

    def run(self) -> int:
        """Take line after line until the input ends. Ctrl-C passes through when it comes twice in a row,
        or once where no terminal is there to go on at; other errors are told and the chat goes on."""
        if self._interactive:
            self._greet()
        status, interrupted = 0, False
        while True:
            try:
                line = self._read_line()
                if line is None or line.split()[0] == "/quit":
                    return 0 if self._interactive else status
                interrupted = False
                self._answer(line)
            except MiniPiError as error:
                print(one_line(f"出错：{error}"), file=sys.stderr, flush=True)
                status = 1
            except KeyboardInterrupt:
                if not self._interactive or (interrupted and not self._lines.was_begun()):
                    raise
                interrupted = True
                print("已停止。再按一次 Ctrl-C 离开，或接着提问。", flush=True)

    def document(self) -> JsonObject:
        """The record of the chat; its command asks the same questions again."""
        failed = [run["status"] for run in self._runs if run["status"] != "answered"]
        text = self._runs[-1].get("text") if self._runs else None
        outcome = {"status": failed[0] if failed else "answered", "text": text, "runs": self._runs}
        lines = " ".join(map(shlex.quote, self._entered))
        command = command_line((__package__ or "qianchat.chat").removesuffix(".chat"), sys.argv[1:])
        return self._recorder.document(f"printf '%s\\n' {lines} | {command}", outcome)

    def _greet(self) -> None:
        print(f"模型 {printable(self._model)}。/help 看命令，Ctrl-D 离开。")
        if self._saved:
            asked = sum(item.get("role") == "user" for item in self._conversation.history)
            print(f"接着 {printable(str(self._saved))}，其中已有 {asked} 问。")

    def _read_line(self) -> str | None:
        """The next line that is not blank, None at the end of the input."""
        line = ""
        try:
            while not line:
                line = self._lines.next(PROMPT)
        except EOFError:
            if self._interactive:
                print()
            return None
        except KeyboardInterrupt:
            if self._interactive:
                print()
            raise
        if not self._interactive:
            print(PROMPT + printable(line), flush=True)
        return "/" + line[1:] if line.startswith("／") else line  # as Chinese input methods write it

    def _answer(self, line: str) -> None:
        try:
            line.encode()
        except UnicodeEncodeError:
            raise MiniPiError("这一行不是有效的 UTF-8 文本，没有发送。请换成 UTF-8 后重试。") from None
        if line.startswith("/"):
            self._command(*[*line.split(maxsplit=1), ""][:2])
        else:
            self._ask(line)

    def _ask(self, question: str) -> None:
        run: JsonObject = {"question": question, "status": "interrupted"}
        self._runs.append(run)
        self._entered.append(question)
        with self._screen.question():
            try:
                run |= {"text": self._conversation.ask(question), "status": "answered"}
            except MiniPiError as error:
                run |= {"error": str(error), "status": "failed"}
                raise

    def _command(self, name: str, rest: str) -> None:
        match name:
            case "/help":
                print(HELP)
            case "/files":
                print(printable(self._files.list_files(rest or ".")))
            case "/usage":
                print(usage_line(self._conversation))
            case "/save":
                self._save(rest)
            case "/forget":
                self._conversation.forget_last()
                self._entered.append(name)
                print("已撤回最后一问。")
            case "/reset":
                self._reset()
                self._entered.append(name)
                print("已重新开始。")
            case _:
                raise MiniPiError(f"没有命令 {name[:50]}。/help 列出所有命令；问题不能以 / 开头。")

    def _save(self, name: str) -> None:
        # Unlike Path's own, this one raises nothing for an unknown user.
        path = Path(os.path.expanduser(name)) if name else self._saved  # noqa: PTH111
        if path is None or "\0" in name:
            raise MiniPiError("请写出要保存到的文件：/save FILE")
        if path != self._saved:
            self._require_nothing_lost(path)
        self._conversation.save(path)
        self._saved = path
        print(f"已保存到 {printable(str(path))}。")

    def _require_nothing_lost(self, path: Path) -> None:
        """Raise MiniPiError where path holds anything but the beginning of this conversation."""
        try:
            if not path.is_file() or path.stat().st_size == 0:
                return
        except OSError:  # which saving will tell
            return
        try:
            there = Conversation.load(path, *self._parts).history
        except MiniPiError:
            raise MiniPiError(f"{path} 不是保存的对话，没有改动它。请换一个文件名。") from None
        if there != self._conversation.history[: len(there)]:
            raise MiniPiError(f"{path} 里是另一个对话，没有改动它。请换一个文件名，或先移走它。")

    def _reset(self) -> None:
        self._conversation = Conversation(*self._parts)
        self._saved = None  # a new conversation is not to replace the one in that file


def usage_line(conversation: Conversation) -> str:
    """What the conversation's requests came to, in tokens, as far as the server reported it."""
    turns = conversation.usage
    read, written = _sum(turns, "input_tokens"), _sum(turns, "output_tokens")
    cached = _sum([turn and turn.get("input_tokens_details") for turn in turns], "cached_tokens")
    return f"{len(turns)} 次模型请求：读入 {read} token（其中 {cached} 来自缓存），写出 {written} token。"


def _sum(usages: Sequence[Any], key: str) -> int:
    """What a server does not report, or not as a number, counts as 0; some report 12.0."""
    values = [usage.get(key) for usage in usages if isinstance(usage, dict)]
    return sum(
        int(value) for value in values if type(value) is int or (type(value) is float and value < 1e15)
    )
