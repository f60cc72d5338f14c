"""The chat as a user meets it: in a pseudo-terminal, and with its questions piped in."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from unittest import mock

from checks.support import harness
from checks.support.harness import JsonObject, call, message, response
from checks.support.server import Raw, Reply, Request, Scripted, ScriptedServer
from packages.qianchat.__main__ import main
from packages.qianchat.chat.screen import StreamedText
from packages.qianchat.terminal import thinking

ROOT = Path(__file__).parent.parent.parent
DAILY = '{"date": "2026-09-06", "orders": 128, "revenue_yuan": 9600}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DEADLINE = 30.0  # seconds that anything is waited for; it normally takes a fraction of one


def stream(answer: JsonObject, *deltas: str | float) -> Raw:
    """A streamed reply: each delta as an event (a number pauses that many seconds), then the whole answer."""
    parts: list[bytes | float] = [HEAD]
    for delta in deltas:
        parts.append(delta if isinstance(delta, float) else _event("response.output_text.delta", delta=delta))
    return Raw(*parts, _event("response.completed", response=answer))


def _event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def says(text: str, *deltas: str | float) -> Raw:
    """A streamed answer in text; by default it comes character by character."""
    return stream(response(message(text)), *(deltas or text))


def calls(name: str, path: str, call_id: str = "call_1") -> Raw:
    """A streamed reply that is one tool call."""
    return stream(response(call(name, {"path": path}, call_id)))


def stops_halfway(text: str) -> Raw:
    """A streamed reply whose text begins and then does not go on."""
    return Raw(HEAD, _event("response.output_text.delta", delta=text), 2 * DEADLINE)


def texts(request: Request) -> list[str]:
    """A request's input in short: text of messages, name of calls, output of results."""
    short = []
    for item in request.json["input"]:
        content = item.get("content") or [{"text": item.get("name") or item.get("output")}]
        short.append(content[0]["text"])
    return short


class ChatCase(unittest.TestCase):
    """Every test has a project of its own, and a folder for what the chat writes."""

    def setUp(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.project, self.folder = folder / "project", folder
        (self.project / "reports").mkdir(parents=True)
        (self.project / "reports/daily.json").write_text(DAILY)

    def environment(self, server: ScriptedServer | None, **changes: str) -> dict[str, str]:
        url = server.url if server else "http://127.0.0.1:9"
        ours = ("QWEN_", "NO_COLOR", "PYTHON")  # PYTHONUNBUFFERED would hide a flush that is missing
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, "QWEN_BASE_URL": url, "TERM": "dumb", "PYTHONPATH": str(ROOT), **changes}

    def command(self, *flags: str) -> list[str]:
        return ["-m", "packages.qianchat", "chat", "--project", str(self.project), *flags]

    def piped(
        self, lines: str | bytes, *replies: Scripted, flags: tuple[str, ...] = (), **environment: str
    ) -> None:
        """Run the chat over lines in this process; what came of it is in status, out, err and requests."""
        data = lines if isinstance(lines, bytes) else lines.encode()
        stdin, out, err = (io.TextIOWrapper(io.BytesIO(each), "utf-8") for each in (data, b"", b""))
        with ScriptedServer(*replies) as server, contextlib.ExitStack() as changed:
            changed.enter_context(
                mock.patch.dict(os.environ, self.environment(server, **environment), clear=True)
            )
            changed.enter_context(mock.patch("sys.stdin", stdin))
            changed.enter_context(contextlib.redirect_stdout(out))
            changed.enter_context(contextlib.redirect_stderr(err))
            self.status = main(self.command(*flags)[2:])
        self.requests = server.requests
        for each in (out, err):
            each.flush()
        self.out, self.err = (each.buffer.getvalue().decode() for each in (out, err))

    def terminal(self, server: ScriptedServer, *flags: str, **environment: str) -> Terminal:
        terminal = Terminal(self.command(*flags), self.environment(server, **environment))
        self.addCleanup(terminal.close)
        return terminal


# A session leader without a terminal gets this one as its controlling terminal, so that Ctrl-C arrives.
OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Terminal:
    """A program in a pseudo-terminal of its own, 200 columns wide."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.screen, self._seen = "", 0
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", OWN_TERMINAL, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self._bytes = b""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def enter(self, line: str) -> None:
        """Wait for the prompt and give it a line."""
        self.expect(PROMPT)
        self.type(line + "\r")

    def leave(self) -> int:
        """Wait for the prompt, press Ctrl-D, and return the exit status."""
        self.expect(PROMPT)
        self.type("\x04")
        return self.end()

    def interrupt(self) -> None:
        """Press Ctrl-C once the program waits for something."""
        self.settle()
        self.type("\x03")

    def settle(self) -> None:
        """Until the program waits. A signal that comes between readline's prompt and its wait would be noticed
        with the next key only."""
        status = Path(f"/proc/{self.process.pid}/stat")
        deadline = time.monotonic() + DEADLINE
        while status.exists() and ") S " not in status.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)

    def expect(self, marker: str) -> str:
        """Read on until marker is there, and return what stands between the last one and its end."""
        deadline = time.monotonic() + DEADLINE
        while marker not in self.screen[self._seen :]:
            if not self._read(deadline):
                raise AssertionError(f"no {marker!r} in {self.screen[self._seen :]!r}")
        start, self._seen = self._seen, self.screen.index(marker, self._seen) + len(marker)
        return self.screen[start : self._seen]

    def end(self) -> int:
        """Read until the program has left the terminal, and return its exit status."""
        deadline = time.monotonic() + DEADLINE
        while self._read(deadline):
            pass
        return self.process.wait(DEADLINE)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # Linux: nobody has the other side open any more
            data = b""
        self._bytes += data
        self.screen = self._bytes.decode("utf-8", "ignore").replace("\r\n", "\n")
        return bool(data)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


PROMPT = "问题> "
READS = (
    calls("list_files", "reports", "call_1"),
    calls("read_file", "reports/daily.json", "call_2"),
)


class InATerminal(ChatCase):
    def test_ask_stop_ask_again_save_and_resume(self) -> None:
        replies = (*READS, says("共 128 单。"), stops_halfway("平均每单的营收是"), says("75 元。"))
        saved = self.folder / "talk.json"
        with ScriptedServer(*replies) as server:
            screen = self.terminal(server)
            screen.enter("看看日报")
            shown = screen.expect("共 128 单。\n\x1b[2m来源：reports/daily.json\x1b[0m\n")
            self.assertIn("\x1b[2mlist_files reports → 1 项\x1b[0m\n", shown)
            self.assertIn(f"\x1b[2mread_file reports/daily.json → {len(DAILY)} 字节\x1b[0m\n", shown)
            screen.enter("平均呢")
            screen.expect("平均每单的营收是")  # the rest never comes: this was shown while it was made
            screen.interrupt()
            self.assertNotIn("来源", screen.expect("已停止"))
            screen.enter("再算一次")
            shown = screen.expect("来源：这一问没有读取文件")
            self.assertIn("75 元。\n", shown)
            self.assertNotIn("不一致", shown)  # with the text that was stopped
            screen.enter(f"/save {saved}")
            screen.expect(f"已保存到 {saved}。")
            self.assertEqual(screen.leave(), 0)
        before = ["看看日报", "list_files", "reports/daily.json", "read_file", DAILY, "共 128 单。"]
        self.assertEqual(texts(server.requests[4]), [*before, "平均呢", "再算一次"])
        self.assertEqual(saved.stat().st_mode & 0o777, 0o600)

        with ScriptedServer(says("是 75 元。")) as server:
            screen = self.terminal(server, "--resume", str(saved))
            screen.expect("其中已有 3 问")
            screen.enter("还记得吗")
            screen.expect("是 75 元。")
            screen.enter("/save")  # to the file that it came from
            screen.expect(f"已保存到 {saved}。")
            screen.enter("/quit")
            self.assertEqual(screen.end(), 0)
        self.assertEqual(texts(server.requests[0]), [*before, "平均呢", "再算一次", "75 元。", "还记得吗"])
        self.assertEqual(len(json.loads(saved.read_bytes())["history"]), 11)

    def test_ctrl_c_twice_at_the_prompt_leaves_and_a_line_between_keeps_the_chat(self) -> None:
        with ScriptedServer(says("你好。")) as server:
            screen = self.terminal(server)
            screen.expect(PROMPT)
            screen.type("写了一半")
            screen.expect("写了一半")
            screen.interrupt()
            screen.expect("再按一次 Ctrl-C 离开")
            screen.enter("看看日报")
            screen.expect("你好。")
            screen.expect(PROMPT)
            screen.interrupt()
            screen.expect(PROMPT)
            screen.interrupt()
            self.assertEqual(screen.end(), 130)
            self.assertNotIn("Traceback", screen.screen)
        self.assertEqual(texts(server.requests[0]), ["看看日报"])

    def test_ctrl_c_stops_an_answer_and_the_next_one_leaves(self) -> None:
        with ScriptedServer(stops_halfway("平均每单的营收是")) as server:
            screen = self.terminal(server)
            screen.enter("看看日报")
            screen.expect("平均每单的营收是")
            screen.interrupt()
            screen.expect(PROMPT)
            screen.interrupt()
            self.assertEqual(screen.end(), 130)

    def test_the_thinking_line_goes_away_with_the_first_text_and_a_thought_is_not_shown(self) -> None:
        deltas = (1.1, "<think>先", 0.5, "想", "</think>\n\n共 128 单，", "营收")
        reply = says("<think>\n先想想\n</think>\n\n共 128 单，营收 9600 元。", *deltas)
        with ScriptedServer(reply) as server:
            screen = self.terminal(server)
            screen.enter("看看日报")
            screen.expect("模型思考中…… 0 秒")
            screen.expect("\r\x1b[K\r模型思考中…… 1 秒")  # still, while it thinks aloud
            self.assertNotIn("想想", screen.expect("\r\x1b[K共 128 单，"))
            self.assertEqual(screen.expect("来源")[:11], "营收 9600 元。\n")

    def test_the_first_letters_of_a_call_leave_the_thinking_line_there(self) -> None:
        beside = stream(response(call("list_files", {"path": "."})), "A", 0.5)
        with ScriptedServer(beside, says("好。")) as server:
            screen = self.terminal(server)
            screen.enter("看看日报")
            self.assertNotIn("A", screen.expect("模型思考中"))
            self.assertNotIn("A", screen.expect("\r\x1b[K\x1b[2mlist_files . → 1 项"))
            screen.expect("好。")

    def test_no_color_leaves_only_text(self) -> None:
        for value, dimmed in (("1", False), ("", True)):
            with self.subTest(NO_COLOR=value), ScriptedServer(*READS, says("好。")) as server:
                screen = self.terminal(server, NO_COLOR=value)
                screen.enter("看看日报")
                screen.expect("来源")
                self.assertEqual(bool(re.search(r"\x1b\[[0-9;]*m", screen.screen)), dimmed)

    def test_a_failed_question_is_told_and_the_chat_goes_on(self) -> None:
        with ScriptedServer(Reply(400, body={"error": {"message": "坏了"}}), says("好。")) as server:
            screen = self.terminal(server)
            screen.enter("看看日报")
            self.assertIn("出错：第 1 轮：", screen.expect("坏了"))
            screen.enter("/forget")
            screen.expect("已撤回最后一问。")
            screen.enter("再问")
            screen.expect("好。")
            self.assertEqual(screen.leave(), 0)
        self.assertEqual(texts(server.requests[1]), ["再问"])

    @unittest.skipUnless(find_spec("readline"), "no readline here")
    def test_the_last_question_is_recalled_with_a_key(self) -> None:
        with ScriptedServer(says("一。"), says("二。")) as server:
            screen = self.terminal(server)
            screen.enter("看看日报")
            screen.expect("一。")
            screen.enter("\x10")  # Ctrl-P, the same as the arrow up
            screen.expect("二。")
        self.assertEqual(texts(server.requests[1]), ["看看日报", "一。", "看看日报"])

    def without_readline(self, server: ScriptedServer) -> Terminal:
        hidden = (
            "import sys; sys.modules['readline'] = None;"
            "from packages.qianchat.__main__ import main; sys.exit(main(sys.argv[1:]))"
        )
        screen = Terminal(["-c", hidden, *self.command()[2:]], self.environment(server))
        self.addCleanup(screen.close)
        return screen

    def test_it_works_without_readline(self) -> None:
        with ScriptedServer(says("好。")) as server:
            screen = self.without_readline(server)
            screen.enter("看看日报")
            screen.expect("好。")
            self.assertEqual(screen.leave(), 0)

    def test_a_line_that_the_terminal_cuts_is_not_sent_without_readline(self) -> None:
        with ScriptedServer(says("好。")) as server:
            screen = self.without_readline(server)
            screen.enter("x" * 5000)
            screen.expect("这一行太长，终端截断了它（上限 4095 字节），没有发送")
            screen.enter("y" * 4000)
            screen.expect("好。")
        self.assertEqual(texts(server.requests[0]), ["y" * 4000])

    @unittest.skipUnless(find_spec("readline"), "no readline here")
    def test_readline_has_no_such_limit(self) -> None:
        with ScriptedServer(says("好。")) as server:
            screen = self.terminal(server)
            screen.enter("问" * 3000)
            screen.expect("来源")
        self.assertEqual(texts(server.requests[0]), ["问" * 3000])

    def test_chinese_arrives_as_it_was_typed_in_any_locale(self) -> None:
        for name, value in (("LC_ALL", "C"), ("LC_ALL", "POSIX"), ("LC_ALL", "xx_YY.UTF-8"), ("LANG", "C")):
            with self.subTest(locale=value), ScriptedServer(says("好。")) as server:
                screen = self.terminal(server, **{"LC_ALL": "", "LC_CTYPE": "", name: value})
                screen.enter("日报里有多少订单？")
                screen.expect("来源")
                self.assertEqual(texts(server.requests[0]), ["日报里有多少订单？"])

    @unittest.skipUnless(find_spec("readline"), "no readline here")
    def test_pasted_lines_are_one_question_without_escape_codes(self) -> None:
        with ScriptedServer(says("好。")) as server:
            screen = self.terminal(server, TERM="xterm")
            screen.expect("\x1b[?2004h")  # the terminal is told to mark what is pasted
            screen.type("\x1b[200~看看日报\r有几单\n营收呢\x1b[201~\r")
            screen.expect("来源")
        self.assertEqual(texts(server.requests[0]), ["看看日报\n有几单\n营收呢"])

    @unittest.skipUnless(find_spec("readline"), "no readline here")
    def test_half_a_line_between_two_ctrl_c_keeps_the_chat(self) -> None:
        with ScriptedServer(says("好。")) as server:
            screen = self.terminal(server)
            screen.expect(PROMPT)
            screen.interrupt()
            screen.expect(PROMPT)
            screen.type("写了一半")
            screen.expect("写了一半")
            screen.interrupt()
            screen.expect("再按一次 Ctrl-C 离开")
            screen.enter("看看日报")
            screen.expect("好。")
            self.assertEqual(screen.leave(), 0)

    def test_a_closed_terminal_or_sigterm_leaves_the_record(self) -> None:
        for number in (signal.SIGHUP, signal.SIGTERM):
            for asking in (False, True):
                with self.subTest(number=number, asking=asking):
                    replies = (says("共 128 单。"), *[stops_halfway("平均每单的营收是")] * asking)
                    record = self.folder / f"{number}{asking}.json"
                    with ScriptedServer(*replies) as server:
                        screen = self.terminal(server, "--record", str(record))
                        screen.enter("日报")
                        screen.expect("来源")
                        screen.expect(PROMPT)
                        if asking:
                            screen.type("平均\r")
                            screen.expect("平均每单")
                        screen.settle()
                        screen.process.send_signal(number)
                        self.assertEqual(screen.end(), 128 + number)
                    runs = json.loads(record.read_bytes())["outcome"]["runs"]
                    self.assertEqual([run["status"] for run in runs], ["answered", *["interrupted"] * asking])


@harness.table(
    [
        # name, tool, arguments, the line that tells of it
        ("a_listing_is_counted", "list_files", {"path": "reports"}, "list_files reports → 2 项"),
        ("an_empty_folder_has_none", "list_files", {"path": "empty"}, "list_files empty → 0 项"),
        (
            "what_a_listing_leaves_out_is_no_item",
            "list_files",
            {"path": "linked"},
            "list_files linked → 1 项",
        ),
        (
            "a_file_has_its_size_in_bytes",
            "read_file",
            {"path": "reports/日报.md"},
            "read_file reports/日报.md → 6 字节",
        ),
        ("an_empty_file_has_none", "read_file", {"path": "void.txt"}, "read_file void.txt → 0 字节"),
        (
            "a_failure_says_why",
            "read_file",
            {"path": "reports/none.json"},
            "read_file reports/none.json → 失败：路径不存在：reports/none.json",
        ),
        (
            "an_unknown_tool_shows_what_it_got",
            "rm",
            {"force": "是"},
            'rm {"force": "是"} → 失败：未知工具：rm',
        ),
        (
            "a_name_cannot_steer_the_terminal_or_make_a_second_line",
            "read_file",
            {"path": "a\x1b[2J\nb"},
            "read_file a\\u001b[2J b → 失败：路径含有控制字符或无效字符：a\\x1b[2J\\nb",
        ),
        (
            "a_long_name_is_cut",
            "read_file",
            {"path": "x" * 5000},
            f"read_file {'x' * 199}… → 失败：路径不存在",
        ),
    ]
)
class ToolLines(ChatCase):
    """Each tool call is one line."""

    def row(self, tool: str, arguments: JsonObject, line: str) -> None:
        (self.project / "reports/日报.md").write_text("好的", "utf-8")
        (self.project / "void.txt").touch()
        for folder in ("empty", "linked"):
            (self.project / folder).mkdir()
        (self.project / "linked/real.txt").touch()
        (self.project / "linked/link").symlink_to("real.txt")
        self.piped("问\n", stream(response(call(tool, arguments))), says("答。"))
        self.assertEqual(self.status, 0, self.err)
        echo, told, answer, *_ = self.out.split("\n")
        self.assertEqual((echo, told[: len(line)], answer), ("问题> 问", line, "答。"))
        self.assertLess(len(told), 330)


@harness.table(
    [
        # name, the whole text of a turn that then calls a tool, its deltas, what is to be seen of it
        ("it_is_shown_once", "我先看看有哪些文件。", ("我先看看", "有哪些文件。"), "我先看看有哪些文件。\n"),
        ("a_short_one_is_shown_with_the_whole", "好。", ("好。",), "好。\n"),
        ("the_first_letters_of_a_call_are_not_shown", "", ("A",), ""),
        (
            "a_thought_is_not_shown",
            "<think>嗯</think>\n\n看看。",
            ("<th", "ink>嗯</thi", "nk>\n\n看看。"),
            "看看。\n",
        ),
        (
            "what_the_stream_left_out_is_added",
            "我先看看有哪些文件，再读。",
            ("我先看看有哪些文件",),
            "我先看看有哪些文件，再读。\n",
        ),
        (
            "line_ends_are_not_doubled",
            "我先看看有哪些文件。\n",
            ("\n", "我先看看有哪些文件。\n"),
            "我先看看有哪些文件。\n",
        ),
        (
            "the_whole_is_the_truth_where_they_disagree",
            "我先看看有哪些文件。",
            ("我不看有哪些文件。",),
            "我不看有哪些文件。\n（以上与完整的响应不一致，以下面为准）\n我先看看有哪些文件。\n",
        ),
        (
            "an_escape_sequence_in_two_pieces_stays_text",
            "红色的文件\x1b[31m有\u202e几个",
            ("红色的文件有几个\x1b", "[31m"),
            "红色的文件有几个\\u001b[31m\n（以上与完整的响应不一致，以下面为准）\n红色的文件\\u001b[31m有\\u202e几个\n",
        ),
    ]
)
class TextBesideACall(ChatCase):
    def row(self, text: str, deltas: tuple[str, ...], seen: str) -> None:
        beside = stream(response(message(text), call("list_files", {"path": "."})), *deltas)
        self.piped("问\n", beside, says("答案就在这里。"))
        self.assertEqual(self.status, 0, self.err)
        line = "list_files . → 1 项\n"
        source = "来源：这一问没有读取文件\n\n"
        self.assertEqual(self.out, f"{PROMPT}问\n{seen}{line}答案就在这里。\n{source}")


class StreamedTextInPieces(unittest.TestCase):
    def test_any_cut_of_the_same_text_shows_the_same(self) -> None:
        for text, shown in (
            ("\n <think>a</think>\n 共 128 单，营收 9600 元。", "共 128 单，营收 9600 元。"),
            ("<thinking about it", "<thinking about it"),
            ("<think>没有想完", ""),
            ("<THINK>a</THINK><thinking>b</thinking>共 128 单，营收。", "共 128 单，营收。"),
            ("<think> 开始一段思考。", ""),  # shown with the whole, when it is known that no more follows
        ):
            for cut in range(len(text)):
                with self.subTest(text=text, cut=cut):
                    streamed = StreamedText()
                    pieces = streamed.add(text[:cut]) + streamed.add(text[cut:])
                    self.assertEqual((pieces, streamed.shown()), (shown, shown))


@harness.table(
    [
        ("a_line_end_in_two_pieces_is_one", ("第一行的内容\r", "\n第二行\r", "\n"), "第一行的内容\n第二行\n"),
        (
            "a_family_and_persian_stay",
            ("👨\u200d👩\u200d👧 می\u200cخواهم。",),
            "👨\u200d👩\u200d👧 می\u200cخواهم。\n",
        ),
        (
            "a_tag_character_is_told_from_its_neighbour",
            ("标签是 \U000e0067。好。",),
            "标签是 \\U000e0067。好。\n",
        ),
        (
            "a_lone_carriage_return_cannot_overwrite",
            ("订单是 128 单\r", "999 单。"),
            "订单是 128 单\\u000d999 单。\n",
        ),
    ]
)
class AnswersInPieces(ChatCase):
    def row(self, deltas: tuple[str, ...], seen: str) -> None:
        self.piped("问\n", stream(response(message("".join(deltas))), *deltas))
        self.assertEqual(self.out, f"{PROMPT}问\n{seen}来源：这一问没有读取文件\n\n")


class TheThinkingLine(unittest.TestCase):
    def test_to_start_it_again_starts_no_second_one(self) -> None:
        terminal = mock.Mock(wraps=io.StringIO(), isatty=lambda: True)
        with mock.patch("sys.stderr", terminal), thinking() as line:
            running = threading.active_count()
            line.start()
            self.assertEqual(threading.active_count(), running)


@harness.table(
    [
        # name, lines, replies, stdout (a part), stderr (a part, "" is all), exit status
        ("help", "/help\n", (), "/save [FILE]", "", 0),
        (
            "files",
            "/files\n/files reports\n",
            (),
            "reports/\n问题> /files reports\nreports/daily.json\n",
            "",
            0,
        ),
        ("files_of_a_folder_after_some_blanks", "/files   reports\n", (), "reports/daily.json\n", "", 0),
        ("files_of_no_such_folder", "/files nope\n", (), "", "路径不存在：nope。目录 . 中有：reports/", 1),
        (
            "usage",
            "问\n/usage\n",
            (says("答。"),),
            "1 次模型请求：读入 10 token（其中 0 来自缓存），写出 5 token。",
            "",
            0,
        ),
        (
            "usage_as_reported",
            "问\n再问\n/usage\n",
            (
                says("答。"),
                stream(
                    response(
                        message("答。"),
                        usage={
                            "input_tokens": 90,
                            "output_tokens": 4,
                            "input_tokens_details": {"cached_tokens": 80},
                        },
                    )
                ),
            ),
            "2 次模型请求：读入 100 token（其中 80 来自缓存），写出 9 token。",
            "",
            0,
        ),
        (
            "usage_of_a_server_that_reports_nonsense",
            "问\n再问\n/usage\n",
            (
                stream(response(message("答。"), usage=None)),
                stream(response(message("答。"), usage={"input_tokens": "x", "input_tokens_details": []})),
            ),
            "2 次模型请求：读入 0 token",
            "",
            0,
        ),
        ("save_without_a_name", "/save\n", (), "", "请写出要保存到的文件：/save FILE", 1),
        (
            "save_where_nothing_can_be_written",
            "/save /nowhere/x\n/usage\n",
            (),
            "0 次模型请求",
            "无法保存对话到 /nowhere/x",
            1,
        ),
        (
            "save_under_a_name_that_no_file_can_have",
            "/save a\0b\n/usage\n",
            (),
            "0 次模型请求",
            "/save FILE",
            1,
        ),
        ("save_with_an_unknown_user", "/save ~nobody-here/x\n", (), "", "无法保存对话到 ~nobody-here/x", 1),
        ("save_under_an_endless_name", "/save " + "x" * 5000, (), "", "无法保存对话到 xxx", 1),
        (
            "save_under_a_name_that_steers_the_terminal",
            "/save /nowhere/\x1b[2J\n",
            (),
            "",
            "无法保存对话到 /nowhere/\\u001b[2J",
            1,
        ),
        ("forget_with_nothing_asked", "/forget\n/usage\n", (), "0 次模型请求", "还没有可以撤回的问题", 1),
        ("quit_with_a_word_more", "/quit now\n问\n", (), "/quit now\n", "", 0),
        ("a_byte_order_mark_is_dropped", "\ufeff/files\n", (), "问题> /files\nreports/\n", "", 0),
        (
            "a_tab_or_a_wide_blank_behind_a_command",
            "/files\treports\n/files\u3000reports\n",
            (),
            "reports/daily.json\n",
            "",
            0,
        ),
        (
            "marks_of_a_paste_are_no_part_of_a_question",
            "\x1b[200~问\n再问\x1b[201~\n",
            (says("答。"),),
            "问题> 问\n再问\n答。\n",
            "",
            0,
        ),
        ("a_paste_without_an_end", "\x1b[200~问\n再问", (says("答。"),), "问题> 问\n再问\n答。\n", "", 0),
        (
            "usage_as_fractions",
            "问\n/usage\n",
            (stream(response(message("答。"), usage={"input_tokens": 12.0, "output_tokens": True})),),
            "读入 12 token（其中 0 来自缓存），写出 0 token。",
            "",
            0,
        ),
        ("save_to_a_device", "/save /dev/null\n", (), "", "无法保存对话到 /dev/null：它不是普通文件", 1),
        ("save_to_a_folder", "/save reports/..\n", (), "", "无法保存对话到", 1),
        ("quit_ends_the_input", "/quit\n问\n", (), "/quit\n", "", 0),
        (
            "an_unknown_command",
            "/etc/hosts 里有什么\n/usage\n",
            (),
            "0 次模型请求",
            "没有命令 /etc/hosts。/help",
            1,
        ),
        ("a_slash_of_a_chinese_keyboard", "／files\n", (), "reports/\n", "", 0),
        ("blank_lines_are_no_questions", "\n  \n问\r\n\n", (says("答。"),), "问题> 问\n答。\n", "", 0),
        (
            "a_question_cannot_steer_the_terminal",
            "问\x1b[2J\n",
            (says("答。"),),
            "问题> 问\\u001b[2J\n答",
            "",
            0,
        ),
        ("a_last_line_without_an_end", "问", (says("答。"),), "答。\n", "", 0),
        ("no_input_at_all", "", (), "", "", 0),
        (
            "a_line_that_is_no_utf8",
            b"\xff\xfe\n\xe9\x97\xae\n",
            (says("答。"),),
            "问题> \\udcff\\udcfe\n问题> 问\n答。",
            "不是有效的 UTF-8",
            1,
        ),
        ("a_very_long_line", "问" * 100_000 + "\n", (says("答。"),), "答。\n", "", 0),
        ("a_long_unknown_command", "/" + "x" * 100_000 + "\n", (), "", "没有命令 /xxx", 1),
        (
            "half_a_surrogate_in_the_answer",
            "问\n",
            (says("这是半个字符\ud83d，没有了。"),),
            "这是半个字符�，没有了。\n",
            "",
            0,
        ),
    ]
)
class Lines(ChatCase):
    """Piped in, line by line: answers on stdout, each error one line on stderr, and the chat goes on."""

    def row(self, lines: str | bytes, replies: tuple[Scripted, ...], out: str, err: str, status: int) -> None:
        self.piped(lines, *replies)
        self.assertIn(out, self.out)
        self.assertEqual(self.status, status)
        if not err:
            self.assertEqual(self.err, "")
        else:
            self.assertRegex(self.err, r"\A出错：.{1,500}\n\Z")
            self.assertIn(err, self.err)


class PipedIn(ChatCase):
    def test_questions_build_on_each_other_and_name_their_own_sources(self) -> None:
        again = calls("read_file", "./reports//daily.json", "call_3")
        wrong = calls("read_file", "reports/no.json", "call_4")
        self.piped("日报\n平均\n", *READS, again, wrong, says("共 128 单。"), says("75 元。"))
        lines = self.out.split("\n")
        self.assertEqual(lines[5:7], ["共 128 单。", "来源：reports/daily.json"])
        self.assertEqual(lines[7:11], ["", "问题> 平均", "75 元。", "来源：这一问没有读取文件"])
        self.assertEqual(texts(self.requests[5])[-2:], ["共 128 单。", "平均"])
        self.assertTrue(self.requests[5].json["stream"])
        self.assertNotIn("\x1b", self.out + self.err)

    def test_a_failed_run_is_one_line_and_the_next_question_is_asked(self) -> None:
        refusal = Reply(400, body={"error": {"message": "坏\n了\x1b[31m"}})
        self.piped("一\n二\n", refusal, says("好。"))
        self.assertEqual(self.status, 1)
        self.assertRegex(self.err, r"\A出错：第 1 轮：.*坏.*\n\Z")
        self.assertNotIn("\x1b", self.err)
        self.assertEqual(texts(self.requests[1]), ["一", "二"])

    def test_a_failure_after_some_text_begins_a_new_line(self) -> None:
        self.piped("一\n/usage\n", Raw(HEAD, _event("response.output_text.delta", delta="说了一半就断开了")))
        self.assertIn("\n说了一半就断开了\n问题> /usage\n", self.out)
        self.assertNotIn("来源", self.out)
        self.assertEqual(self.status, 1)

    def test_reset_and_forget_change_what_the_model_is_sent(self) -> None:
        self.piped("一\n二\n/forget\n三\n/reset\n四\n/usage\n", says("1"), says("2"), says("3"), says("4"))
        self.assertEqual(texts(self.requests[2]), ["一", "1", "三"])
        self.assertEqual(texts(self.requests[3]), ["四"])
        self.assertIn("1 次模型请求", self.out)

    def test_after_a_reset_the_resumed_file_is_not_written_over(self) -> None:
        saved = self.folder / "talk.json"
        self.piped(f"一\n/save {saved}\n", says("1"))
        before = saved.read_bytes()
        self.piped("/reset\n/save\n", flags=("--resume", str(saved)))
        self.assertIn("请写出要保存到的文件", self.err)
        self.assertEqual(saved.read_bytes(), before)

    def test_save_without_a_name_takes_the_last_one(self) -> None:
        saved = self.folder / "talk.json"
        self.piped(f"/save {saved}\n一\n/save\n", says("1"))
        self.assertEqual(len(json.loads(saved.read_bytes())["history"]), 2)

    def test_a_file_that_is_no_saved_chat_is_not_replaced(self) -> None:
        notes = self.folder / "notes.md"
        for content in (b"# notes", b'{"version": 2, "history": []}', b"\xff", b" "):
            notes.write_bytes(content)
            self.piped(f"/save {notes}\n")
            self.assertIn("不是保存的对话，没有改动它", self.err)
            self.assertEqual(notes.read_bytes(), content)
        notes.write_bytes(b"")
        self.piped(f"/save {notes}\n")
        self.assertIn("已保存", self.out)

    def test_another_chat_is_not_replaced_but_the_beginning_of_this_one_is(self) -> None:
        saved = self.folder / "talk.json"
        self.piped(f"一\n/save {saved}\n", says("1"))
        before = saved.read_bytes()
        self.piped(f"二\n/save {saved}\n", says("2"))
        self.assertIn("里是另一个对话，没有改动它", self.err)
        self.assertEqual(saved.read_bytes(), before)
        other = self.folder / "other.json"
        self.piped(f"/save {other}\n二\n/save {saved}\n", says("2"), flags=("--resume", str(saved)))
        self.assertEqual((self.status, len(json.loads(saved.read_bytes())["history"])), (0, 4))

    def test_of_two_chats_that_resume_one_file_the_second_is_told_and_loses_nothing(self) -> None:
        saved = self.folder / "talk.json"
        self.piped(f"一\n/save {saved}\n", says("1"))
        second = self.folder / "second.json"

        def the_first_saves(_: Request) -> Raw:
            document = json.loads(saved.read_bytes())
            document["history"] += document["history"]
            saved.write_text(json.dumps(document))
            return says("2")

        lines = f"二\n/save\n/save {saved}\n/save {second}\n"
        self.piped(lines, the_first_saves, flags=("--resume", str(saved)))
        self.assertEqual(self.err.count("它已经变了"), 2)
        self.assertEqual(len(json.loads(saved.read_bytes())["history"]), 4)
        self.assertEqual(len(json.loads(second.read_bytes())["history"]), 4)

    def test_a_key_does_not_get_into_the_record(self) -> None:
        record = self.folder / "record.json"
        key = "sk-0123456789"
        self.piped(f"是 {key} 吗\n", says("是。"), flags=("--record", str(record)), QWEN_API_KEY=key)
        self.assertEqual(self.requests[0].headers["authorization"], f"Bearer {key}")
        self.assertIn("是。", record.read_text("utf-8"))
        self.assertNotIn(key, record.read_text("utf-8"))

    def test_a_file_name_cannot_steer_the_terminal(self) -> None:
        (self.project / "零\u200b宽.txt").touch()
        self.piped("/files\n")
        self.assertIn("零\\u200b宽.txt\n", self.out)

    def test_a_home_directory_is_understood_in_save(self) -> None:
        self.piped("/save ~/talk 1.json\n", HOME=str(self.folder))
        self.assertTrue((self.folder / "talk 1.json").exists(), self.err)

    def test_local_qwen_is_asked_for_before_the_first_question(self) -> None:
        self.piped("一\n", flags=("--local-qwen",), QWEN_BASE_URL="http://example.invalid:1")
        self.assertEqual(self.status, 1)
        self.assertIn("--local-qwen 只能在本机的端口上起动模型", self.err)
        self.assertEqual(self.out, "")

    def test_a_project_that_cannot_be_opened(self) -> None:
        self.piped("一\n", flags=("--project", "no/such"))
        self.assertEqual((self.status, self.out), (1, ""))
        self.assertIn("打不开项目目录", self.err)


@harness.table(
    [
        ("it_is_not_there", None),
        ("it_is_a_folder", "folder"),
        ("half_a_document", b'{"version": 1, "history": ['),
        ("no_utf8", b"\xff\xfe"),
        ("an_unknown_version", b'{"version": 99, "history": []}'),
        ("no_history", b'{"version": 1}'),
        ("no_object", b"[]"),
        (
            "a_call_without_output",
            b'{"version": 1, "history": [{"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"}]}',
        ),
        (
            "a_call_id_that_is_a_number",
            b'{"version": 1, "history": [{"type": "function_call", "call_id": 5}]}',
        ),
        ("nested_without_end", b"[" * 100_000),
    ]
)
class BrokenFileToResume(ChatCase):
    """It is told in an error, the file is left alone, and nothing is asked."""

    def row(self, content: bytes | str | None) -> None:
        path = self.folder / "broken.json"
        if content == "folder":
            path.mkdir()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        self.piped("一\n", flags=("--resume", str(path)))
        self.assertEqual((self.status, self.out), (1, ""))
        self.assertIn("broken.json", self.err)
        self.assertLess(self.err.count("\n"), 4)
        if isinstance(content, bytes):
            self.assertEqual(path.read_bytes(), content)
        else:
            self.assertEqual(path.exists(), content == "folder")


class AsAProcess(ChatCase):
    def start(self, server: ScriptedServer | None, *flags: str, **options: Any) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = self.environment(server)
        process = subprocess.Popen(
            [sys.executable, *self.command(*flags)], env=environment, encoding="utf-8", **{**pipes, **options}
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_ctrl_c_ends_a_piped_chat_and_the_record_tells_it(self) -> None:
        record = self.folder / "record.json"
        with ScriptedServer(says("共 128 单。"), stops_halfway("平均每单的营收是")) as server:
            process = self.start(server, "--record", str(record))
            assert process.stdin and process.stdout
            process.stdin.write("日报\n/forget\n/reset\n/save x'y/z\n平均 'x'\n再问\n")
            process.stdin.flush()
            while "平均每单" not in (
                shown := os.read(process.stdout.fileno(), 65536).decode("utf-8", "ignore")
            ):
                self.assertTrue(shown, "the chat ended too early")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130)
        self.assertTrue(err.endswith("\n已中断。\n"), err)
        document = json.loads(record.read_bytes())
        runs = [
            {"question": "日报", "text": "共 128 单。", "status": "answered"},
            {"question": "平均 'x'", "status": "interrupted"},
        ]
        self.assertEqual(document["outcome"], {"status": "interrupted", "text": None, "runs": runs})
        again = shlex.split(document["command"])
        self.assertEqual(again[:6], ["printf", "%s\\n", "日报", "/forget", "/reset", "平均 'x'"])
        self.assertEqual(again[6:10], ["|", "python3", "-m", "packages.qianchat"])
        self.assertNotIn(str(self.folder), document["command"])
        self.assertEqual([len(turn["new_items"]) for turn in document["turns"]], [1, 1])

    def test_whoever_read_stdout_may_leave(self) -> None:
        gone = threading.Event()

        def answer(_: Request) -> Raw:
            gone.wait(DEADLINE)
            return says("共 128 单，营收 9600 元。")

        with ScriptedServer(answer) as server:
            process = self.start(server)
            assert process.stdin and process.stdout
            process.stdin.write("日报\n" * 3)
            process.stdin.close()
            self.assertEqual(process.stdout.readline(), "问题> 日报\n")
            process.stdout.close()
            gone.set()
            self.assertEqual(process.wait(DEADLINE), 1)
            assert process.stderr
            self.assertEqual(process.stderr.read(), "")
            process.stdin = process.stdout = None

    def test_whoever_read_stdout_may_leave_before_the_last_words(self) -> None:
        to_nowhere = mock.Mock()

        class Left(io.BytesIO):
            def write(self, data: Any) -> int:
                if b"/save" in bytes(data) and not to_nowhere.called:  # of /help
                    raise BrokenPipeError
                return super().write(data)

        stdin = io.TextIOWrapper(io.BytesIO(b"/help\n"))
        stdout = io.TextIOWrapper(io.BufferedWriter(cast(io.RawIOBase, Left())))
        with mock.patch.multiple("sys", stdin=stdin, stdout=stdout), mock.patch("os.dup2", to_nowhere):
            self.assertEqual(main(self.command()[2:]), 1)
        self.assertEqual(to_nowhere.call_args.args[1], 1)

    def test_a_full_disk_under_stdout_is_told(self) -> None:
        if not Path("/dev/full").exists():
            self.skipTest("no /dev/full here")
        with Path("/dev/full").open("w") as full:
            process = self.start(None, stdout=full)
            _, err = process.communicate("/help\n", timeout=DEADLINE)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(err, r"\A无法读取输入或写出结果：.*\n\Z")

    def test_a_closed_stdin_is_an_empty_one(self) -> None:
        command = ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, *self.command()]
        done = subprocess.run(command, env=self.environment(None), capture_output=True, timeout=DEADLINE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_wrong_usage_and_help(self) -> None:
        process = self.start(None, "--nonsense")
        process.communicate("", timeout=DEADLINE)
        self.assertEqual(process.returncode, 2)
        process = self.start(None, "--help")
        out, _ = process.communicate("", timeout=DEADLINE)
        self.assertEqual(process.returncode, 0)
        for word in (
            "用法：",
            "--project DIR",
            "默认当前目录",
            "--resume FILE",
            "--local-qwen",
            "--record FILE",
        ):
            self.assertIn(word, out)

    def test_without_project_it_is_the_current_folder(self) -> None:
        command = [sys.executable, "-m", "packages.qianchat", "chat"]
        done = subprocess.run(
            command, cwd=self.project, env=self.environment(None), input=b"/files\n", capture_output=True
        )
        self.assertIn("reports/\n", done.stdout.decode())

    def test_a_record_that_cannot_be_written_is_told_before_the_first_question(self) -> None:
        process = self.start(None, "--record", str(self.folder / "no/such.json"))
        out, err = process.communicate("日报\n", timeout=DEADLINE)
        self.assertEqual((process.returncode, out), (1, ""))
        self.assertIn("无法写入记录", err)


if __name__ == "__main__":
    raise SystemExit(harness.main())
