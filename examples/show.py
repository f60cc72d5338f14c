"""`python3 -m examples.show FILE` prints a record of a run as the article's Figure 2 reads; --html draws it."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from examples.record_reader import NO_RESULT, Call, Record, Turn, read_record
from packages.pi_ai import MiniPiError
from packages.qianchat.arguments import Parser
from packages.qianchat.terminal import one_line, printable, short_error, soft_streams

WIDTH = 78  # columns; a Chinese character takes two
MAX_LINES = 24  # of one text; --html has all of it


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 shown, 1 the file cannot be shown or written, 2 wrong usage."""
    soft_streams()
    parser = Parser(prog="python3 -m examples.show", description="把一次运行的记录按图 2 逐轮展示。")
    parser.add_argument("file", type=Path, metavar="FILE", help="--record 写下的 JSON，例如 evidence/ 里的")
    parser.add_argument("--html", type=Path, metavar="OUT", help="写成一个网页文件，不再打印")
    args = parser.parse_args(arguments)
    try:
        record = read_record(args.file)
        if args.html:
            _write_page(record, args.file, args.html)
        else:
            print(*text(record), sep="\n", flush=True)
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read stdout has left, as `head` does: nothing more can be printed, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def text(record: Record) -> Iterator[str]:
    """The lines of a record, none of them wider than WIDTH."""
    yield from _labelled("记录", record.name)
    yield from _labelled("结果", record.ending.title)
    for name, value in record.facts:
        yield from _labelled(name, value)
    for turn in record.turns:
        yield ""
        yield _rule(f"第 {turn.number} 轮")
        yield from _turn(turn)
    left = [part for part in record.left if part.kind != "output"]
    if left:
        yield from ("", _rule("最后一次请求之后"))
    for part in left:
        yield from _message("", f"history 又加入{part.title}，没有再发给模型", part.text)
    if not record.turns:
        yield from ("", _rule("没有发出请求"))
        yield from _message("Loop ─▶ 用户", record.ending.title, record.ending.text)


def _turn(turn: Turn) -> Iterator[str]:
    """The messages of one turn, in the order in which they went."""
    if turn.question is not None:
        yield from _message("用户 ─▶ Loop", "提问", turn.question)
    yield from _message("Loop ─▶ Qwen", turn.request_line)
    if turn.changed_line:
        yield from _message("", turn.changed_line)
    for part in turn.background:
        yield from _message("", f"· {part.title}", part.text)
    if turn.error is not None:
        yield from _message("Qwen ─✕ Loop", "没有响应", turn.error)
    for part in turn.said:
        if turn.ending and turn.ending.text == part.text:
            yield from _message("Qwen ╌▶ Loop", "文本，不再调用工具")
        else:
            yield from _message("Qwen ╌▶ Loop", part.title, part.text)
        if part.call:
            yield from _message("", f"call_id={part.call.call_id}")
    for call in turn.calls:
        yield from _execution(call)
    if turn.appended_line:
        yield from _message("history", turn.appended_line)
    if turn.ending:
        yield from _message("Loop ─▶ 用户", turn.ending.title, turn.ending.text)
    yield f"   {turn.cost_line}"


def _execution(call: Call) -> Iterator[str]:
    if call.output is None:
        yield from _message("Loop    工具", f"调用 {call.label}{NO_RESULT}")
        return
    yield from _message("Loop ─▶ 工具", f"执行调用 {call.label}：{call.name}")
    yield from _message("工具 ╌▶ Loop", f"结果 {call.label}（call_id={call.call_id}）", call.output)


def _message(way: str, title: str, body: str = "") -> Iterator[str]:
    """One arrow of the figure: who to whom, what, and its text indented below."""
    first, *more = _wrapped(one_line(title), WIDTH - 17) or [""]
    yield f"   {way}{' ' * (14 - _columns(way))}{first}".rstrip()
    lines = [line for paragraph in printable(body).splitlines() for line in _wrapped(paragraph, WIDTH - 19)]
    kept = lines if len(lines) <= MAX_LINES else [*lines[:MAX_LINES], f"……还有 {len(lines) - MAX_LINES} 行"]
    for line in more:
        yield " " * 17 + line
    for line in kept:
        yield " " * 19 + line


def _rule(title: str) -> str:
    head = f"── {_wrapped(one_line(title), WIDTH - 6)[0]} "
    return head + "─" * (WIDTH - _columns(head))


def _labelled(name: str, value: str) -> Iterator[str]:
    for number, line in enumerate(_wrapped(one_line(value), WIDTH - 8)):
        yield (f"{name}{' ' * (8 - _columns(name))}" if number == 0 else " " * 8) + line


def _wrapped(line: str, width: int) -> list[str]:
    """line in pieces of at most width columns; a piece ends at a space where there is one."""
    pieces = []
    line = line.expandtabs(4)
    while _columns(line) > width:
        end = used = 0
        while used + _columns(line[end]) <= width:
            used += _columns(line[end])
            end += 1
        space = line.rfind(" ", width // 3, end)
        end = space + 1 if space > 0 else end
        pieces.append(line[:end].rstrip())
        line = line[end:]
    return [*pieces, line]


def _columns(line: str) -> int:
    """How many terminal columns line takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line
    )


def _write_page(record: Record, source: Path, out: Path) -> None:
    from examples.show_html import page

    try:
        if out.exists() and out.samefile(source):
            raise MiniPiError(f"--html 不能写到记录自己身上：{out}。请换一个文件名，例如 show.html。")
        out.write_text(page(record), encoding="utf-8")
    except OSError as error:
        raise MiniPiError(f"无法写入 {out}：{error.strerror}。请换一个可写的文件名。") from None


if __name__ == "__main__":
    raise SystemExit(main())
