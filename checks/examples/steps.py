"""The five steps as a person runs them: real processes against a scripted server on 127.0.0.1."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

from checks.support.harness import JsonObject, call, main, message, response, table
from checks.support.server import Raw, Reply, Request, Scripted, ScriptedServer
from examples.common import QUESTION, UNFINISHED
from packages.pi_ai import MiniPiError, ModelRequestError
from packages.qianchat import connection
from packages.qianchat.record import write_record
from packages.qianchat.server.local_qwen import LOCAL_MODEL

ROOT = Path(__file__).parent.parent.parent
STEPS = (
    "step01_model_call",
    "step02_tool_request",
    "step03_one_round",
    "step04_agent_loop",
    "step05_required_tool",
)
ONE, TWO, THREE, FOUR, FIVE = STEPS
KEY = "sk-never-to-be-seen"

DAILY = "reports/daily-2026-09-06.json"
REPORT = (ROOT / "sample_project" / DAILY).read_text("utf-8")
ASK_USER = "请提供报告文件的路径。"
ANSWER = "这份日报的日期是2026年9月6日，订单数为128，营收为9600元。"
LIST = response(call("list_files", {"path": "reports"}, "call_a"))
READ = response(call("read_file", {"path": DAILY}, "call_b"))
DONE = response(message(ANSWER))

ASKED = f"[问题] {QUESTION}\n"
LISTED = f"""\
[第 1 轮调用] list_files {{"path": "reports"}}
  call_id=call_a
[工具成功]
{DAILY}
"""
READ_CALL = f"""\
[第 2 轮调用] read_file {{"path": "{DAILY}"}}
  call_id=call_b
"""
WAS_READ = """\
[工具成功]
{
  "date": "2026-09-06",
  "orders": 128,
  "revenue_yuan": 9600
}
"""
ANSWERED = f"\n[第 3 轮模型文本]\n{ANSWER}\n\n{ANSWER}\n"


@dataclass
class Run:
    """A finished process: its exit status, and what it printed, byte for byte."""

    status: int
    out: bytes
    err: bytes

    @property
    def stdout(self) -> str:
        return self.out.decode("utf-8")

    @property
    def stderr(self) -> str:
        return self.err.decode("utf-8")


def environment(url: str = "http://127.0.0.1:1", **changes: str) -> dict[str, str]:
    """A user's environment with nothing of ours in it but the address."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "SYSTEMROOT")}
    return {**kept, "PYTHONPATH": str(ROOT), "QWEN_BASE_URL": url, **changes}


def start(
    step: str, *arguments: str | bytes, env: Mapping[str, str], **options: Any
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"examples.{step}", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=env, **{"cwd": ROOT, **pipes, **options})


def finish(process: subprocess.Popen[bytes]) -> Run:
    with process:
        out, err = process.communicate(timeout=30)
    return Run(process.returncode, out or b"", err or b"")


def run(step: str, *arguments: str | bytes, env: Mapping[str, str] | None = None, **options: Any) -> Run:
    return finish(start(step, *arguments, env=environment() if env is None else env, **options))


def play(
    step: str, replies: Sequence[Scripted], *arguments: str | bytes, **changes: str
) -> tuple[Run, list[JsonObject]]:
    """Run a step against a server that answers with exactly these replies; also, what it was sent."""
    with ScriptedServer(*replies) as server:
        done = run(step, *arguments, env=environment(server.url, **changes))
    return done, [request.json for request in server.requests]


class Case(unittest.TestCase):
    """Ends of a run, in the words of design.md."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()

    def assert_answered(self, done: Run, stdout: str) -> None:
        self.assertEqual((done.status, done.stderr, done.stdout), (0, "", stdout))

    def assert_failed(self, done: Run, status: int, stdout: str, *told: str) -> None:
        """The error on stderr alone, in three lines at most, with all that it has to tell."""
        self.assertEqual((done.status, done.stdout), (status, stdout), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn(len(done.stderr.splitlines()), (1, 2, 3), done.stderr)
        for words in told:
            self.assertIn(words, done.stderr)


class TheSteps(Case):
    """Each does what its part of the article says, prints it as the article shows, and no more."""

    def test_step_1_sends_the_question_alone_and_prints_the_text(self) -> None:
        done, requests = play(ONE, [response(message(ASK_USER))])
        self.assert_answered(done, f"{ASKED}{ASK_USER}\n")
        instructions = requests[0].pop("instructions")
        self.assertIn("不要猜测", instructions)
        self.assertEqual(
            requests[0],
            {
                "model": LOCAL_MODEL,
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}
                ],
                "tools": [],
                "store": False,
                "reasoning": {"effort": "none"},
                "max_output_tokens": 800,
                "temperature": 0,
            },
        )

    def test_step_2_declares_both_tools_shows_the_request_and_runs_nothing(self) -> None:
        # Had it been run, the listing would have been printed, and the model asked again.
        done, requests = play(TWO, [LIST])
        shown, note = done.stdout.split("\n\n")
        self.assertEqual(f"{shown}\n", ASKED + "\n".join(LISTED.splitlines()[:2]) + "\n")
        self.assertEqual(note, "程序只展示请求，还没有执行它。\n")
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertEqual([tool["name"] for tool in requests[0]["tools"]], ["list_files", "read_file"])
        self.assertEqual(requests[0]["tool_choice"], "auto")

    def test_step_3_runs_one_batch_hands_it_back_and_stops_unfinished(self) -> None:
        record = self.folder / "record.json"
        done, requests = play(THREE, [LIST, READ], "--record", str(record))
        self.assert_answered(done, f"{ASKED}{LISTED}{READ_CALL}\n{UNFINISHED}\n")
        self.assertEqual(UNFINISHED, "模型还需要工具，任务尚未完成")
        self.assertEqual(requests[1]["input"][1], LIST["output"][0])
        self.assertEqual(requests[1]["input"][2:], [output_of("call_a", DAILY)])
        document = json.loads(record.read_text("utf-8"))
        self.assertEqual(document["outcome"], {"status": "unfinished", "text": UNFINISHED})
        self.assertEqual(document["added_after_last_request"], READ["output"], "asked for, and not read")
        self.assertNotIn("9600", record.read_text("utf-8"))

    def test_step_3_shows_text_beside_a_call_and_tells_the_model_of_an_unknown_tool(self) -> None:
        first = response(message("我先看看"), call("open", {}, "call_x"))
        done, requests = play(THREE, [first, response(message("抱歉"))])
        shown = "\n[第 1 轮模型文本]\n我先看看\n[第 1 轮调用] open {}\n  call_id=call_x\n"
        failed = "[工具失败]\n未知工具：open\n\n[第 2 轮模型文本]\n抱歉\n"
        self.assert_answered(done, ASKED + shown + failed)
        self.assertEqual(requests[1]["input"][-1], output_of("call_x", "未知工具：open"))

    def test_step_4_reads_the_listed_file_and_answers(self) -> None:
        done, requests = play(FOUR, [LIST, READ, DONE])
        self.assert_answered(done, ASKED + LISTED + READ_CALL + WAS_READ + ANSWERED)
        self.assertEqual([len(request["input"]) for request in requests], [1, 3, 5])
        outputs = [item for item in requests[2]["input"] if item.get("type") == "function_call_output"]
        self.assertEqual(outputs, [output_of("call_a", DAILY), output_of("call_b", REPORT)])
        self.assertEqual({request["tool_choice"] for request in requests}, {"auto"})

    def test_step_4_with_two_turns_runs_both_tools_and_then_fails(self) -> None:
        record = self.folder / "record.json"
        done, _ = play(FOUR, [LIST, READ], "--max-turns", "2", "--record", str(record))
        self.assert_failed(done, 1, ASKED + LISTED + READ_CALL + WAS_READ, "最大轮数 2", "--max-turns")
        document = json.loads(record.read_text("utf-8"))
        self.assertEqual(document["outcome"]["status"], "failed")
        self.assertEqual(document["outcome"]["kind"], "AgentRunError")
        self.assertEqual(document["added_after_last_request"], [*READ["output"], output_of("call_b", REPORT)])

    def test_step_5_offers_nothing_but_list_files_until_it_has_run(self) -> None:
        done, requests = play(FIVE, [LIST, READ, DONE])
        self.assert_answered(done, ASKED + LISTED + READ_CALL + WAS_READ + ANSWERED)
        offered = [([tool["name"] for tool in r["tools"]], r["tool_choice"]) for r in requests]
        both = ["list_files", "read_file"]
        self.assertEqual(offered, [(["list_files"], "required"), (both, "auto"), (both, "auto")])

    def test_step_5_refuses_an_answer_given_before_the_listing(self) -> None:
        done, _ = play(FIVE, [DONE])
        text = f"\n[第 1 轮模型文本]\n{ANSWER}\n"
        self.assert_failed(done, 1, ASKED + text, "第 1 轮", "list_files")

    def test_a_failed_tool_is_shown_as_such_and_the_run_goes_on(self) -> None:
        wrong = response(call("read_file", {"path": "reports/none.json"}, "call_x"))
        done, _ = play(FOUR, [wrong, DONE])
        self.assertEqual(done.status, 0)
        self.assertIn(
            f"  call_id=call_x\n[工具失败]\n路径不存在：reports/none.json。目录 reports 中有：{DAILY}",
            done.stdout,
        )

    def test_another_project_and_question_are_taken(self) -> None:
        (self.folder / "笔记.txt").write_text("晴\r\n", "utf-8", newline="")
        read = response(call("read_file", {"path": "笔记.txt"}))
        arguments = ("--project", str(self.folder), "--question", "天气？")
        done, requests = play(FOUR, [read, DONE], *arguments)
        self.assertTrue(done.stdout.startswith("[问题] 天气？\n[第 1 轮调用] read_file"), done.stdout)
        self.assertIn("[工具成功]\n晴\n\n[第 2 轮", done.stdout)
        self.assertEqual(requests[1]["input"][-1]["output"], "晴\r\n", "the model gets it as it is")

    def test_the_steps_run_from_any_directory_and_leave_nothing_open(self) -> None:
        with ScriptedServer(LIST, READ, DONE) as server:
            env = environment(server.url, PYTHONDEVMODE="1", PYTHONWARNINGS="error")
            done = run(FOUR, env=env, cwd=self.folder)
        self.assert_answered(done, ASKED + LISTED + READ_CALL + WAS_READ + ANSWERED)


def output_of(call_id: str, output: str) -> JsonObject:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


REFUSED = message("", content=[{"type": "refusal", "refusal": "不行\n" * 9}])
CUT = response(message("订单数是"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
CUT_CALL = response(call("list_files", '{"path": "rep'))
OVERLOADED = Reply(500, body={"error": {"message": "显存不足\x1b[2J\nline two\nthree\nfour\nfive"}})


@table(
    [
        ("step_1_a_cut_off_text", ONE, [CUT], "", "QWEN_MAX_OUTPUT_TOKENS"),
        (
            "step_1_a_cap_that_was_reached",
            ONE,
            [response(message("x"), usage={"output_tokens": 800})],
            "",
            "800",
        ),
        ("step_1_a_refusal", ONE, [response(REFUSED)], "", "不行"),
        ("step_1_no_text", ONE, [response()], "", "没有返回文本"),
        ("step_1_blank_text", ONE, [response(message(" \n"))], "", "没有返回文本"),
        ("step_2_no_call", TWO, [DONE], f"\n[第 1 轮模型文本]\n{ANSWER}\n", "没有请求工具"),
        ("step_2_half_a_call", TWO, [CUT_CALL], "", "list_files"),
        ("step_3_half_a_call", THREE, [CUT_CALL], "", "list_files"),
        ("step_3_a_cut_off_text", THREE, [LIST, CUT], LISTED, "QWEN_MAX_OUTPUT_TOKENS"),
        ("step_3_nothing_after_the_batch", THREE, [LIST, response(message(""))], LISTED, "没有返回文本"),
        ("step_4_a_cut_off_text", FOUR, [LIST, CUT], LISTED, "第 2 轮"),
        ("step_4_no_json", FOUR, [Reply(body="<html>")], "", "第 1 轮"),
        ("step_4_a_server_error_of_many_lines", FOUR, [OVERLOADED], "", "显存不足"),
        ("step_4_no_such_model", FOUR, [Reply(404, body={"error": "no model"})], "", "404"),
    ]
)
class WhatFails(Case):
    """Half a product or a broken server: status 1, the reason on stderr, stdout as far as the run came."""

    def row(self, step: str, replies: list[Scripted], stdout: str, told: str) -> None:
        done, _ = play(step, replies)
        self.assert_failed(done, 1, ASKED + stdout, told)
        self.assertNotIn("\x1b", done.stderr)


class BeforeTheFirstRequest(Case):
    """What cannot work is said at once, with what to do, and nothing is asked of any server."""

    def test_without_a_server_the_error_names_its_address_and_both_ways_out(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        for step in STEPS:
            with self.subTest(step):
                done = run(step, env=environment(url))
                self.assert_failed(done, 1, ASKED, url, "--local-qwen", "QWEN_BASE_URL")

    def test_a_bad_environment_is_named_before_a_model_is_fetched(self) -> None:
        cache = self.folder / "cache"
        env = environment(QWEN_MAX_OUTPUT_TOKENS="abc", MINI_PI_CACHE=str(cache))
        self.assert_failed(run(FOUR, "--local-qwen", env=env), 1, "", "QWEN_MAX_OUTPUT_TOKENS", "abc")
        self.assertFalse(cache.exists())

    def test_a_server_elsewhere_cannot_be_started_here_and_no_empty_record_stays(self) -> None:
        record = self.folder / "record.json"
        done = run(FOUR, "--local-qwen", "--record", str(record), env=environment("https://models.example"))
        self.assert_failed(done, 1, "", "--local-qwen", "QWEN_BASE_URL", "https://models.example")
        self.assertFalse(record.exists())

    def test_a_missing_project_or_one_that_is_a_file_is_refused(self) -> None:
        (self.folder / "file").touch()
        for name in ("missing", "file"):
            done = run(FOUR, "--project", str(self.folder / name))
            self.assert_failed(done, 1, "", "项目目录", name)

    def test_a_record_to_a_pipe_or_a_device_is_refused_at_once(self) -> None:
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder / "pipe", Path("/dev/null")):
            done = run(FOUR, "--record", str(path))
            self.assert_failed(done, 1, "", "它不是普通文件")

    def test_a_record_that_could_not_be_written_is_refused_and_leaves_nothing(self) -> None:
        for path in ("missing/record.json", "."):
            done = run(FOUR, "--record", str(self.folder / path))
            self.assert_failed(done, 1, "", "记录", "请换一个")
        self.assertEqual(list(self.folder.iterdir()), [])


@table(
    [
        ("an_unknown_flag", ["--nope"], "不认识的参数：--nope"),
        ("a_stray_word", ["日报"], "不认识的参数：日报"),
        ("half_a_flag", ["--rec", "x"], "--rec"),
        ("a_missing_value", ["--record"], "--record 后面缺少一个值"),
        ("a_value_too_many", ["--local-qwen=yes"], "--local-qwen"),
        ("no_turns", ["--max-turns", "0"], "--max-turns"),
        ("turns_in_words", ["--max-turns", "two"], "two"),
        ("turns_without_end", ["--max-turns", "9" * 5000], "--max-turns"),
        ("an_empty_question", ["--question", " "], "--question"),
        ("escapes_and_lines_in_a_flag", ["--\x1b[2J\n\n\n\n"], "\\u001b"),
    ]
)
class WrongUsage(Case):
    """Status 2, in two lines of which the second leads to the help."""

    def row(self, arguments: list[str], told: str) -> None:
        done = run(FOUR, *arguments)
        self.assert_failed(done, 2, "", told, "python3 -m examples.step04_agent_loop --help")
        self.assertEqual(len(done.stderr.splitlines()), 2)


class Help(Case):
    def test_the_help_names_every_flag_and_variable_in_chinese(self) -> None:
        done = run(ONE, "--help")
        self.assertEqual((done.status, done.stderr), (0, ""))
        for flag in ("--project", "--question", "--max-turns", "--local-qwen", "--record"):
            self.assertIn(flag, done.stdout)
        joined = done.stdout.replace("\n", "")
        for name in ("BASE_URL", "MODEL", "REASONING", "MAX_OUTPUT_TOKENS", "API_KEY"):
            self.assertIn(f"QWEN_{name}", joined)
        for english in ("usage", "options", "show this"):
            self.assertNotIn(english, done.stdout)


DEFAULTS = {"max_output_tokens": 800, "temperature": 0, "reasoning": {"effort": "none"}}


class TheEnvironment(unittest.TestCase):
    """QWEN_* as connection.py's first lines tell it; a process of its own is not needed to see that."""

    def test_unset_and_empty_mean_the_default(self) -> None:
        for names in ((), ("QWEN_BASE_URL", "QWEN_MODEL", "QWEN_MAX_OUTPUT_TOKENS", "QWEN_API_KEY")):
            with mock.patch.dict(os.environ, dict.fromkeys(names, ""), clear=True):
                _, config = connection.connect()
                self.assertEqual(connection.base_url(), "http://127.0.0.1:8021")
                self.assertEqual((config.model, config.request_options), (LOCAL_MODEL, DEFAULTS))
                self.assertIsNone(connection.api_key())
                self.assertTrue(config.answer_after_repeat)

    def test_another_model_may_write_more(self) -> None:
        with mock.patch.dict(os.environ, {"QWEN_MODEL": "qwen3-0.6b"}, clear=True):
            self.assertEqual(connection.request_options()["max_output_tokens"], 2048)

    def test_reasoning_that_is_wanted_is_asked_for_in_a_form_that_can_be_sent_back(self) -> None:
        with mock.patch.dict(os.environ, {"QWEN_REASONING": "low"}, clear=True):
            options = connection.request_options()
        self.assertEqual(options["reasoning"], {"effort": "low"})
        self.assertEqual(options["include"], ["reasoning.encrypted_content"])

    def test_the_timeout_is_read_and_nonsense_refused(self) -> None:
        for text, seconds in (("", 120), ("600", 600), ("0.5", 0.5)):
            with mock.patch.dict(os.environ, {"QWEN_TIMEOUT": text}, clear=True):
                self.assertEqual(connection.timeout(), seconds)
        for text in ("0", "-1", "nan", "inf", "1e99", "two", "\udcff"):
            with mock.patch.dict(os.environ, {"QWEN_TIMEOUT": text}, clear=True):
                with self.assertRaisesRegex(MiniPiError, "QWEN_TIMEOUT.*请") as caught:
                    connection.connect()
                str(caught.exception).encode()

    def test_a_wait_is_told_on_a_terminal_only(self) -> None:
        for terminal, told in ((True, "服务器忙（HTTP 503），3 秒后再问"), (False, "")):
            stream = io.StringIO()
            with mock.patch.object(stream, "isatty", return_value=terminal), mock.patch("sys.stderr", stream):
                connection._tell_wait(3, ModelRequestError("busy", 503))
            self.assertTrue(stream.getvalue().startswith(told) if told else not stream.getvalue())

    def test_values_are_taken_and_an_empty_reasoning_is_not_sent(self) -> None:
        values = {"QWEN_MODEL": "qwen3-0.6b", "QWEN_MAX_OUTPUT_TOKENS": "64", "QWEN_REASONING": ""}
        with mock.patch.dict(os.environ, values, clear=True):
            _, config = connection.connect(3)
        self.assertEqual((config.model, config.max_turns), ("qwen3-0.6b", 3))
        self.assertEqual(config.request_options, {"max_output_tokens": 64, "temperature": 0})
        self.assertFalse(config.answer_after_repeat, "measured for the local model only")

    def test_bad_values_are_refused_by_name(self) -> None:
        tokens, url, key = "QWEN_MAX_OUTPUT_TOKENS", "QWEN_BASE_URL", "QWEN_API_KEY"
        bad = [(tokens, text) for text in ("abc", "0", "-1", "1.5", "1e3", " 1", "２０４８", "9" * 5000)]
        bad += [(url, text) for text in ("ftp://x", "127.0.0.1:8021", "http://", "http://[", "http://a:b:c")]
        bad += [(url, f"http://user:{KEY}@127.0.0.1"), (url, "http://127.0.0.1:0"), (url, "http://主机")]
        bad += [(key, f"{KEY}\nX: y"), (key, f"{KEY} "), (key, f"{KEY}键")]
        for name, value in bad:
            with self.subTest(name, value=value[:40]), mock.patch.dict(os.environ, {name: value}, clear=True):
                with self.assertRaises(MiniPiError) as caught:
                    connection.connect()
                self.assertIn(name, str(caught.exception))
                self.assertNotIn(KEY, str(caught.exception))
                self.assertLess(len(str(caught.exception)), 300)


class TheKey(Case):
    """QWEN_API_KEY goes to the server's Authorization header and nowhere else."""

    def test_it_is_sent_as_a_header_only_and_is_not_in_the_record_even_if_sent_back(self) -> None:
        record = self.folder / "record.json"
        replies = [LIST, response(message(f"done {KEY}"), echo=f"Bearer {KEY}")]
        with ScriptedServer(*replies) as server:
            env = environment(server.url, QWEN_API_KEY=KEY)
            done = run(FOUR, "--record", str(record), env=env)
        self.assertEqual((done.status, done.stderr), (0, ""))
        for request in server.requests:
            self.assertEqual(request.headers["authorization"], f"Bearer {KEY}")
            self.assertNotIn(KEY.encode(), request.body)
        self.assertNotIn(KEY, record.read_text("utf-8"))
        self.assertIn("Bearer ***", record.read_text("utf-8"))

    def test_a_server_that_refuses_it_cannot_make_it_seen(self) -> None:
        refused = Reply(401, body={"error": {"message": f"bad key {KEY}"}})
        done, _ = play(FOUR, [refused], QWEN_API_KEY=KEY)
        self.assert_failed(done, 1, ASKED, "401", "QWEN_API_KEY", "***")
        self.assertNotIn(KEY, done.stderr)

    def test_without_one_no_header_is_sent(self) -> None:
        with ScriptedServer(DONE) as server:
            run(FOUR, env=environment(server.url, QWEN_API_KEY=""))
        self.assertNotIn("authorization", server.requests[0].headers)


class TheNetwork(Case):
    def test_a_proxy_in_the_environment_never_sees_a_request_to_this_machine(self) -> None:
        with ScriptedServer() as proxy:  # complains about any request
            names = ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")
            done, _ = play(FOUR, [DONE], **dict.fromkeys(names, proxy.url))
        self.assertEqual((done.status, proxy.connections), (0, 0))

    def test_local_qwen_uses_the_server_that_already_answers(self) -> None:
        healthy: list[Scripted] = [{"status": "ok"}, {"data": [{"id": "my-model"}]}]
        done, requests = play(FOUR, [*healthy, LIST, READ, DONE], "--local-qwen")
        self.assertEqual(done.stdout, ASKED + LISTED + READ_CALL + WAS_READ + ANSWERED)
        self.assertIn("my-model", done.stderr)
        self.assertEqual((done.status, len(requests)), (0, 5))


class TheRecord(Case):
    """What evidence/ is made of: a run as it was, and nothing of the machine it ran on."""

    def test_it_holds_each_exchange_once_and_the_command_without_machine_paths(self) -> None:
        project, record = self.folder / "my project", self.folder / "record.json"
        (project / "reports").mkdir(parents=True)
        (project / DAILY).write_text(REPORT, "utf-8")
        record.write_text("an older record that is longer" * 999, "utf-8")
        arguments = (f"--project={project}", "--record", str(record), "--max-turns", "4")
        play(FOUR, [LIST, READ, DONE], *arguments, QWEN_MODEL="my-model")
        text = record.read_text("utf-8")
        document = json.loads(text)
        self.assertEqual(
            document["command"],
            "python3 -m examples.step04_agent_loop '--project=my project' --record record.json --max-turns 4",
        )
        for folder in (self.folder, ROOT, Path.home()):
            self.assertNotIn(f"{folder}/", text)
        self.assertEqual(document["version"], 1)
        self.assertEqual(document["settings"]["model"], "my-model")
        self.assertNotIn("input", document["settings"])
        new = [turn["new_items"] for turn in document["turns"]]
        question = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}
        ]
        first = [*LIST["output"], output_of("call_a", DAILY)]
        self.assertEqual(new, [question, first, [*READ["output"], output_of("call_b", REPORT)]])
        self.assertEqual([turn["response"] for turn in document["turns"]], [LIST, READ, DONE])
        self.assertEqual([turn["changed_settings"] for turn in document["turns"]], [{}, {}, {}])
        self.assertEqual(document["added_after_last_request"], DONE["output"])
        self.assertEqual(document["usage"], [LIST["usage"]] * 3)
        self.assertEqual(document["outcome"], {"status": "answered", "text": ANSWER})

    def test_settings_that_change_between_turns_are_told(self) -> None:
        record = self.folder / "record.json"
        play(FIVE, [LIST, DONE], "--record", str(record))
        document = json.loads(record.read_text("utf-8"))
        self.assertEqual(document["settings"]["tool_choice"], "required")
        changed = document["turns"][1]["changed_settings"]
        self.assertEqual(changed["tool_choice"], "auto")
        self.assertEqual(set(changed), {"tools", "tool_choice"})

    def test_a_request_that_failed_is_in_it_with_its_error(self) -> None:
        record = self.folder / "record.json"
        done, _ = play(FOUR, [LIST, Reply(500, body="out of memory")], "--record", str(record))
        document = json.loads(record.read_text("utf-8"))
        self.assertIn("out of memory", document["turns"][1]["error"])
        self.assertEqual(document["usage"], [LIST["usage"], None])
        self.assertEqual(document["outcome"]["error"].strip(), done.stderr.strip())
        self.assertEqual(document["outcome"]["kind"], "ModelRequestError")

    def test_odd_words_in_the_question_do_not_stop_it_from_being_written(self) -> None:
        record = self.folder / "record.json"
        question = "~nobody 'x' \udcff\n好"
        odd = question.encode("utf-8", "surrogateescape")
        done, requests = play(FOUR, [DONE], "--question", odd, "--record", str(record))
        self.assertEqual((done.status, done.stderr), (0, ""))
        document = json.loads(record.read_text("utf-8"))
        self.assertEqual(document["turns"][0]["new_items"][0]["content"][0]["text"], question)
        sent = question.replace("\udcff", "\ufffd")
        self.assertEqual(requests[0]["input"][0]["content"][0]["text"], sent)
        self.assertIn("~nobody", document["command"])

    def test_a_link_to_nowhere_is_written_through_and_not_removed(self) -> None:
        link = self.folder / "link.json"
        link.symlink_to(self.folder / "target.json")
        play(FOUR, [DONE], "--record", str(link))
        self.assertTrue(link.is_symlink())
        self.assertIn("answered", (self.folder / "target.json").read_text("utf-8"))


class HostileText(Case):
    """Nothing that a model or a file says can steer the terminal or forge a line of the report."""

    def test_what_is_printed_holds_no_control_character_and_one_line_per_name(self) -> None:
        (self.folder / "log.txt").write_text("\x1b[31mred\x7f\r\n", "utf-8", newline="")
        hostile = message("\x1b[2J\x1b]0;owned\x07\x9b\x00\r\u202e\udc80\u2066完")
        forged = call("list_files\n[工具成功]", {"path\n\x1b": "\u202e\x9b"}, "call\n[工具成功]\x1b")
        listed, read = call("list_files", {"path": "."}), call("read_file", {"path": "log.txt"})
        scripts = {
            ONE: [[hostile]],
            TWO: [[hostile, forged]],
            THREE: [[hostile, forged], [hostile, read]],
            FOUR: [[forged], [hostile, read], [hostile]],
            FIVE: [[listed], [hostile]],
        }
        for step, outputs in scripts.items():
            with self.subTest(step):
                replies = [response(*output) for output in outputs]
                done, _ = play(step, replies, "--project", str(self.folder))
                self.assertEqual((done.status, done.stderr), (0, ""))
                self.assertEqual(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", done.stdout), [])
                self.assertIn("\\u001b[2J", done.stdout)
                if forged in outputs[0]:
                    self.assertIn("[第 1 轮调用] list_files [工具成功] {", done.stdout)
                    self.assertIn("\n  call_id=call [工具成功]\\u001b\n", done.stdout)
                if step == FOUR:
                    self.assertIn("[工具成功]\n\\u001b[31mred\\u007f\n", done.stdout)

    def test_a_terminal_without_chinese_sees_escapes_instead_of_a_traceback(self) -> None:
        done, _ = play(FOUR, [LIST, READ, DONE], PYTHONIOENCODING="ascii")
        self.assertEqual((done.status, done.err), (0, b""))
        self.assertIn(b"call_id=call_a", done.out)
        self.assertTrue(done.out.isascii())
        done = run(FOUR, env=environment(PYTHONIOENCODING="ascii"))
        self.assertEqual(done.status, 1)
        self.assertIn(b"--local-qwen", done.err)
        self.assertTrue(done.err.isascii())


class TheEnd(Case):
    """Ctrl-C, and a stdout that is full, closed, or whose reader has left."""

    def test_ctrl_c_while_the_server_is_silent_ends_with_130_and_still_writes_the_record(self) -> None:
        record, asked = self.folder / "record.json", threading.Event()

        def silent(_: Request) -> Raw:
            asked.set()
            return Raw(30.0)

        with ScriptedServer(LIST, silent) as server:
            process = start(FOUR, "--record", str(record), env=environment(server.url))
            self.assertTrue(asked.wait(20))
            process.send_signal(signal.SIGINT)
            done = finish(process)
        self.assert_failed(done, 130, ASKED + LISTED, "已中断")
        document = json.loads(record.read_text("utf-8"))
        self.assertEqual(document["outcome"], {"status": "interrupted"})
        self.assertNotIn("response", document["turns"][1])

    def test_sigterm_and_a_closed_terminal_still_write_the_record(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            record, asked = self.folder / f"{number}.json", threading.Event()

            def silent(_: Request, asked: threading.Event = asked) -> Raw:
                asked.set()
                return Raw(30.0)

            with self.subTest(number), ScriptedServer(LIST, silent) as server:
                process = start(FOUR, "--record", str(record), env=environment(server.url))
                self.assertTrue(asked.wait(20))
                process.send_signal(number)
                self.assertEqual(finish(process).status, 128 + number)
                document = json.loads(record.read_text("utf-8"))
                self.assertEqual(document["outcome"], {"status": "interrupted"})
                self.assertEqual(len(document["turns"]), 2)

    def test_a_full_disk_leaves_the_old_record(self) -> None:
        path = self.folder / "old.json"
        path.write_text("old")
        full = OSError(errno.ENOSPC, "No space left on device")
        with mock.patch("os.fsync", side_effect=full), self.assertRaisesRegex(MiniPiError, "无法写入记录"):
            write_record(path, {"new": 1})
        self.assertEqual((path.read_text(), len(list(self.folder.iterdir()))), ("old", 1))

    def test_a_record_keeps_the_permissions_of_the_old_one_and_a_new_one_has_the_usual(self) -> None:
        path = self.folder / "old.json"
        mask = os.umask(0o027)
        self.addCleanup(os.umask, mask)
        for mode in (0o640, 0o604):
            write_record(path, {"new": 1})
            self.assertEqual(path.stat().st_mode & 0o777, mode)
            path.chmod(0o604)

    def test_a_reader_that_leaves_ends_the_run_without_a_word(self) -> None:
        for step, reply in ((FOUR, LIST), (ONE, DONE), (TWO, LIST)):
            left = threading.Event()

            def wait(_: Request, reply: JsonObject = reply, left: threading.Event = left) -> JsonObject:
                left.wait(20)
                return reply

            with self.subTest(step), ScriptedServer(wait, forever=True) as server:
                process = start(step, env=environment(server.url))
                stdout: IO[bytes] = process.stdout  # type: ignore[assignment]
                self.assertEqual(stdout.readline().decode(), ASKED)
                stdout.close()
                left.set()
                with process:
                    _, stderr = process.communicate(timeout=20)
                self.assertEqual((process.returncode, stderr), (1, b""))
                self.assertEqual(len(server.requests), 1, "nobody watches: nothing more is asked")

    @unittest.skipUnless(Path("/dev/full").exists(), "only Linux has /dev/full")
    def test_a_full_stdout_is_told(self) -> None:
        with Path("/dev/full").open("wb") as full:
            done = run(FOUR, stdout=full)
        self.assert_failed(done, 1, "", "标准输出")

    def test_closed_streams_do_no_harm(self) -> None:
        for closed, printed in ((">&-", ""), ("2>&-", ASKED + LISTED + READ_CALL + WAS_READ + ANSWERED)):
            with self.subTest(closed), ScriptedServer(LIST, READ, DONE) as server:
                shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", f"examples.{FOUR}"]
                done = subprocess.run(shell, env=environment(server.url), cwd=ROOT, capture_output=True)
                self.assertEqual((done.returncode, done.stdout.decode(), done.stderr), (0, printed, b""))
        shell[2] = 'exec "$@" 2>&-'
        done = subprocess.run(shell, env=environment(), cwd=ROOT, capture_output=True)
        self.assertEqual((done.returncode, done.stdout.decode()), (1, ASKED), "no error on stdout instead")


class WhileTheModelThinks(Case):
    """A terminal is told that the model is at work and for how long; nobody else is."""

    def test_a_terminal_shows_the_seconds_and_afterwards_nothing_of_them(self) -> None:
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        with ScriptedServer(Raw(1.3, Reply(body=DONE).wire())) as server:
            process = start(FOUR, env=environment(server.url), stdout=slave, stderr=slave)
            os.close(slave)
            seen = b""
            with process:
                while chunk := read_terminal(master):
                    seen += chunk
            self.assertEqual(process.returncode, 0)
        text = seen.decode().replace("\r\n", "\n")
        self.assertIn("模型思考中…… 0 秒", text)
        self.assertIn("模型思考中…… 1 秒", text)
        self.assertEqual(screen(text), f"{ASKED}\n[第 1 轮模型文本]\n{ANSWER}\n\n{ANSWER}\n")

    def test_a_pipe_gets_none_of_it(self) -> None:
        done, _ = play(FOUR, [Raw(0.5, Reply(body=DONE).wire())])
        self.assertEqual((done.status, done.stderr), (0, ""))
        self.assertNotIn("思考", done.stdout)


def read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def screen(text: str) -> str:
    """What a terminal shows in the end: a carriage return goes back, ESC [K clears to the end of the line."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for part in line.split("\r"):
            part, *cleared = part.split("\x1b[K")
            shown = part if cleared else part + shown[len(part) :]
        lines.append(shown)
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
