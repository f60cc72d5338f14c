"""Questions that build on each other: one history, saved whole or not at all, and taken up again."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from checks.support import harness
from checks.support.harness import ScriptedModel, call, message, response, table
from checks.support.server import Request, ScriptedServer
from packages.pi_agent import AgentEvent, AgentLoopConfig, AgentTool, Conversation
from packages.pi_ai import AgentRunError, JsonObject, MiniPiError, ModelRequestError, ResponsesClient

CONFIG = AgentLoopConfig("m", "i")
LOOK = response(call("look", {"at": "reports"}))


def user(text: str) -> JsonObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def answers(*texts: str) -> list[JsonObject]:
    return [response(message(text)) for text in texts]


def look(handler: Callable[[Any], str] = lambda arguments: "seen") -> AgentTool:
    return AgentTool("look", "", {"type": "object"}, handler)


def interrupted(_: Any) -> str:
    raise KeyboardInterrupt


class Asking(unittest.TestCase):
    def test_a_question_carries_all_that_went_before(self) -> None:
        with ScriptedModel(LOOK, *answers("128", "75")) as model:
            conversation = Conversation(model, [look()], CONFIG)
            self.assertEqual(conversation.ask("多少订单？"), "128")
            self.assertEqual(conversation.ask("平均每单多少？"), "75")
        first = model.requests[1]["input"]
        self.assertEqual(model.requests[2]["input"], [*first, message("128"), user("平均每单多少？")])

    def test_the_history_is_a_copy(self) -> None:
        conversation = Conversation(ScriptedModel(*answers("1")), [], CONFIG)
        conversation.ask("q")
        conversation.history[1]["content"][0]["text"] = "changed"
        conversation.history.clear()
        self.assertEqual(conversation.history, [user("q"), message("1")])

    def test_usage_counts_every_turn_of_every_question_failed_ones_too(self) -> None:
        spent = [{"input_tokens": n} for n in range(4)]
        steps = [
            {**LOOK, "usage": spent[0]},
            {**answers("1")[0], "usage": spent[1]},
            response(usage=spent[2]),
            ModelRequestError("gone"),
            {**LOOK, "usage": spent[3]},
        ]
        tools = [look()]
        conversation = Conversation(ScriptedModel(*steps), tools, CONFIG)
        conversation.ask("a")
        for kind in (AgentRunError, ModelRequestError):
            with self.assertRaises(kind):
                conversation.ask("b")
        tools[0] = look(interrupted)
        with self.assertRaises(KeyboardInterrupt):
            conversation.ask("c")
        self.assertEqual(conversation.usage, [*spent[:3], None, spent[3]])
        conversation.usage.clear()
        self.assertEqual(len(conversation.usage), 5, "it is a copy")

    def test_events_reach_the_caller_s_sink(self) -> None:
        events: list[AgentEvent] = []
        Conversation(ScriptedModel(LOOK, *answers("1")), [look()], CONFIG, events.append).ask("q")
        kinds = ["tool_call", "tool_result", "turn_end", "assistant_text", "turn_end"]
        self.assertEqual([event.type for event in events], kinds)

    def test_each_question_has_its_own_turns_and_its_own_required_tools(self) -> None:
        config = AgentLoopConfig("m", "i", max_turns=2, required_tool_names=("look",))
        with ScriptedModel(*[LOOK, *answers("1")] * 3) as model:
            conversation = Conversation(model, [look()], config)
            for _ in range(3):
                conversation.ask("q")
        self.assertEqual([r["tool_choice"] for r in model.requests], ["required", "auto"] * 3)

    def test_settings_that_no_run_would_take_are_refused_at_once(self) -> None:
        with self.assertRaisesRegex(MiniPiError, "工具重名"):
            Conversation(ScriptedModel(), [look(), look()], CONFIG)

    def test_a_question_that_is_none_leaves_the_history_as_it_was(self) -> None:
        conversation = Conversation(ScriptedModel(), [], CONFIG)
        with self.assertRaisesRegex(MiniPiError, "问题"):
            conversation.ask(" ")
        self.assertEqual(conversation.history, [])


def fail(error: BaseException) -> Callable[[Any], Any]:
    def raising(_: Any) -> Any:
        raise error

    return raising


@table(
    [
        ("request_error", [ModelRequestError("gone")], {}, ModelRequestError),
        ("request_error_after_a_call", [LOOK, ModelRequestError("gone")], {}, ModelRequestError),
        ("protocol_error", [LOOK, {"output": None}], {}, MiniPiError),
        ("half_a_call", [response(call("look", '{"at'))], {}, AgentRunError),
        ("empty_response", [LOOK, response()], {}, AgentRunError),
        ("half_an_answer", [response(message("12", status="incomplete"))], {}, AgentRunError),
        ("turn_limit", [LOOK] * 8, {}, AgentRunError),
        ("ctrl_c_in_the_request", [KeyboardInterrupt()], {}, KeyboardInterrupt),
        ("ctrl_c_in_a_tool", [LOOK], {"handler": interrupted}, KeyboardInterrupt),
        ("bug_in_a_tool", [LOOK], {"handler": fail(KeyError("bug"))}, KeyError),
        ("sink_exception", [LOOK], {"emit": fail(LookupError("sink"))}, LookupError),
    ]
)
class AfterAFailure(unittest.TestCase):
    """The history is whole, the next question works, and the failed one can be dropped."""

    def row(self, steps: list[Any], parts: JsonObject, kind: type[BaseException]) -> None:
        tools = [look()]
        sink: list[Callable[[AgentEvent], None]] = [lambda event: None]
        with ScriptedModel(*answers("before"), *steps, *answers("after", "again")) as model:
            conversation = Conversation(model, tools, CONFIG, lambda event: sink[0](event))
            conversation.ask("first")
            before = conversation.history
            tools[0], sink[0] = look(parts.get("handler", lambda _: "seen")), parts.get("emit", sink[0])
            with self.assertRaises(kind):
                conversation.ask("failing")
            tools[0], sink[0] = look(), lambda event: None

            self.assertEqual(conversation.ask("next"), "after")
            sent = model.requests[-1]["input"]
            self.assertEqual(sent[: len(before)], before)
            self.assertEqual(sent[-1], user("next"))
            calls = [item["call_id"] for item in sent if item.get("type") == "function_call"]
            outputs = [item["call_id"] for item in sent if item.get("type") == "function_call_output"]
            self.assertEqual(calls, outputs)

            conversation.forget_last()
            conversation.forget_last()
            self.assertEqual(conversation.history, before)
            self.assertEqual(conversation.ask("once more"), "again")
            self.assertEqual(model.requests[-1]["input"], [*before, user("once more")])


class Forgetting(unittest.TestCase):
    def test_the_last_question_goes_with_all_that_came_of_it(self) -> None:
        conversation = Conversation(ScriptedModel(*answers("1"), LOOK, *answers("2")), [look()], CONFIG)
        conversation.ask("a")
        conversation.ask("b")
        conversation.forget_last()
        self.assertEqual(conversation.history, [user("a"), message("1")])
        conversation.forget_last()
        self.assertEqual(conversation.history, [])

    def test_with_nothing_asked_there_is_nothing_to_forget(self) -> None:
        with self.assertRaisesRegex(MiniPiError, "没有可以撤回的问题"):
            Conversation(ScriptedModel(), [], CONFIG).forget_last()

    def test_a_user_item_that_a_server_sent_leaves_no_call_open(self) -> None:
        odd = response(call("look", {}), {"type": "message", "role": "user", "content": "odd"})
        conversation = Conversation(ScriptedModel(odd, *answers("1")), [look()], CONFIG)
        conversation.ask("q")
        conversation.forget_last()
        self.assertEqual(
            [item.get("type") for item in conversation.history][1:], ["function_call", "function_call_output"]
        )


class Files(unittest.TestCase):
    """A folder with one conversation in it that holds what is hard to write."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "chat.json"
        odd = {
            "type": "odd",
            "b": "\ud800 \U0010ffff 日报\x00\n",
            "a": [1.5, -0.0, 10**30, None, {"z": 1, "y": 2}],
        }
        model = ScriptedModel(LOOK, response(odd, message("128")))
        self.conversation = Conversation(model, [look()], CONFIG)
        self.conversation.ask("多少？")

    def load(self, path: Path | None = None) -> Conversation:
        return Conversation.load(path or self.path, ScriptedModel(*answers("75")), [look()], CONFIG)


class Saving(Files):
    def test_what_was_saved_is_taken_up_again_as_it_was(self) -> None:
        self.conversation.save(self.path)
        loaded = self.load()
        self.assertEqual(json.dumps(loaded.history), json.dumps(self.conversation.history))
        self.assertEqual(loaded.ask("平均？"), "75")
        self.assertEqual(loaded.history[:-2], self.conversation.history)
        self.assertEqual(len(loaded.usage), 1, "what was spent in this life")

    def test_a_path_as_text_is_one_too(self) -> None:
        self.conversation.save(str(self.path))
        loaded = Conversation.load(str(self.path), ScriptedModel(), [], CONFIG)
        self.assertEqual(loaded.history, self.conversation.history)

    def test_a_conversation_without_a_question_is_one(self) -> None:
        Conversation(ScriptedModel(), [], CONFIG).save(self.path)
        self.assertEqual(self.load().history, [])

    def test_the_document_is_versioned_and_holds_the_history_alone(self) -> None:
        self.conversation.save(self.path)
        document = json.loads(self.path.read_bytes())
        self.assertEqual(document, {"version": 1, "history": self.conversation.history})
        self.assertIn("多少？", self.path.read_text("utf-8"), "legible to a person")
        self.assertGreater(self.path.read_bytes().count(b"\n"), 10)

    def test_neither_key_nor_address_is_in_it(self) -> None:
        with ScriptedServer(answers("1")[0]) as server:
            client = ResponsesClient(server.url, api_key="sk-SECRET")
            conversation = Conversation(client, [], CONFIG)
            conversation.ask("q")
            self.assertEqual(server.requests[0].headers["authorization"], "Bearer sk-SECRET")
        conversation.save(self.path)
        text = self.path.read_text("utf-8")
        self.assertNotIn("SECRET", text)
        self.assertNotIn(str(server.port), text)

    def test_only_its_owner_may_read_it_also_where_others_might_before(self) -> None:
        self.path.write_text("old")
        self.path.chmod(0o644)
        mask = os.umask(0)
        self.addCleanup(os.umask, mask)
        self.conversation.save(self.path)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)

    def test_a_long_file_name_is_no_obstacle(self) -> None:
        self.path = self.folder / ("n" * 255)
        self.conversation.save(self.path)
        self.assertEqual(self.load().history, self.conversation.history)

    def test_the_bytes_are_on_the_disk_before_the_name_is(self) -> None:
        order: list[str] = []
        real = os.fsync, Path.replace

        def fsync(descriptor: int) -> None:
            self.assertGreater(os.fstat(descriptor).st_size, 100, "flushed before it is synced")
            order.append("fsync")
            real[0](descriptor)

        def replace(source: Path, target: Any) -> Path:
            self.assertEqual(source.parent, self.folder, "a rename is one step only within a file system")
            order.append("replace")
            return real[1](source, target)

        with mock.patch("os.fsync", fsync), mock.patch.object(Path, "replace", replace):
            self.conversation.save(self.path)
        self.assertEqual(order, ["fsync", "replace"])

    def test_a_process_killed_at_the_last_moment_leaves_the_old_file(self) -> None:
        self.path.write_text("old")
        script = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from packages.pi_agent import AgentLoopConfig, Conversation\n"
            "Path.replace = lambda *_: os._exit(9)\n"
            "Conversation(None, [], AgentLoopConfig('m', 'i')).save(sys.argv[1])\n"
        )
        root = Path(__file__).resolve().parent.parent.parent
        done = subprocess.run([sys.executable, "-c", script, str(self.path)], cwd=root, check=False)
        self.assertEqual((done.returncode, self.path.read_text()), (9, "old"))
        [left] = [each.name for each in self.folder.iterdir() if each != self.path]
        self.assertTrue(left.startswith(".mini_pi."), "hidden, and it says whose it is")


FULL = OSError(errno.ENOSPC, "No space left on device")


@table(
    [
        ("disk_full_on_write", "os.fdopen", FULL, MiniPiError),
        ("disk_full_on_fsync", "os.fsync", FULL, MiniPiError),
        (
            "replace_refused",
            "pathlib.Path.replace",
            PermissionError(errno.EPERM, "Operation not permitted"),
            MiniPiError,
        ),
        ("no_temporary_file", "tempfile.mkstemp", FULL, MiniPiError),
        ("ctrl_c_on_fsync", "os.fsync", KeyboardInterrupt(), KeyboardInterrupt),
        ("ctrl_c_on_replace", "pathlib.Path.replace", KeyboardInterrupt(), KeyboardInterrupt),
    ]
)
class SavingThatFails(Files):
    """The old file stays as it was, and nothing else is left behind."""

    def row(self, function: str, error: BaseException, kind: type[BaseException]) -> None:
        self.path.write_text("old")
        effect: Any = error
        if function == "os.fdopen":
            effect = lambda descriptor, mode: _FullDisk(descriptor, mode)  # noqa: E731
        with mock.patch(function, side_effect=effect), self.assertRaises(kind) as caught:
            self.conversation.save(self.path)
        self.assertEqual(self.path.read_text(), "old")
        self.assertEqual([each.name for each in self.folder.iterdir()], ["chat.json"])
        if kind is MiniPiError:
            self.assertRegex(
                str(caught.exception), r"无法保存对话到 .*chat\.json：[^\[]+。请换一个可写的路径。"
            )
            self.assertIn(str(getattr(error, "strerror", "")), str(caught.exception))
        self.conversation.save(self.path)
        self.assertEqual(self.load().history, self.conversation.history)


class _FullDisk:
    """A file that takes ten bytes, then says that the disk is full."""

    def __init__(self, descriptor: int, mode: str) -> None:
        self._file = open(descriptor, mode)  # noqa: SIM115

    def __enter__(self) -> _FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[:10])
        raise FULL


@table(
    [
        ("folder_that_is_missing", "missing/chat.json"),
        ("folder_itself", "."),
        ("file_as_a_folder", "file/chat.json"),
        ("name_too_long", "n" * 300),
        ("name_with_nul", "a\0b"),
    ]
)
class SavingWhereNothingCanBeSaved(Files):
    def row(self, name: str) -> None:
        (self.folder / "file").write_text("x")
        with self.assertRaisesRegex(MiniPiError, "无法保存对话到"):
            self.conversation.save(self.folder / name)
        self.assertEqual([each.name for each in self.folder.iterdir()], ["file"])


class SavingThroughALink(Files):
    def test_its_target_is_written_and_the_link_stays(self) -> None:
        for target in (self.folder / "real.json", self.folder / "not yet.json"):
            link = self.folder / f"link to {target.name}"
            link.symlink_to(target.name)
            self.conversation.save(link)
            self.assertTrue(link.is_symlink())
            self.assertEqual(self.load(target).history, self.conversation.history)

    def test_to_a_device_or_a_pipe_it_is_refused(self) -> None:
        os.mkfifo(self.folder / "pipe")
        (self.folder / "null").symlink_to(os.devnull)
        for name in ("pipe", "null"):
            with self.assertRaisesRegex(MiniPiError, "它不是普通文件"):
                self.conversation.save(self.folder / name)


class SavingWhatChanged(Files):
    def test_of_two_that_were_loaded_from_one_file_the_second_is_refused(self) -> None:
        self.conversation.save(self.path)
        first, second = self.load(), self.load()
        first.ask("一")
        first.save(self.path)
        saved = self.path.read_bytes()
        second.ask("二")
        link = self.folder / "link.json"
        link.symlink_to(self.path)
        for path in (self.path, link):
            with self.assertRaisesRegex(MiniPiError, "它已经变了"):
                second.save(path)
        self.assertEqual(self.path.read_bytes(), saved)
        first.save(self.path)
        self.path.unlink()
        second.save(self.path)
        self.assertEqual(self.load().history, second.history)


class SavingInTheMiddle(Files):
    def test_what_an_event_sink_saves_can_always_be_loaded(self) -> None:
        kinds: list[str] = []

        def save(event: Any) -> None:
            conversation.save(self.path)
            kinds.append(event.type)
            self.assertEqual(self.load().history, conversation.history)

        two = response(message("看看"), call("look", {}, "a"), call("look", {}, "b"))
        conversation = Conversation(ScriptedModel(two, response(message("1"))), [look()], CONFIG, save)
        conversation.ask("q")
        self.assertEqual(len(kinds), 8, kinds)


class SavingWhatJsonCannotHold(Files):
    def test_a_client_s_objects_are_refused_and_not_written(self) -> None:
        nested: list[Any] = []
        for _ in range(100_000):
            nested = [nested]
        for odd in ({1, 2}, b"bytes", object(), {(1, 2): 3}, nested):
            conversation = Conversation(ScriptedModel(response(message("1"))), [], CONFIG)
            conversation.ask("q")
            conversation._history.append({"type": "odd", "x": odd})
            with self.subTest(odd=type(odd)), self.assertRaisesRegex(MiniPiError, "无法保存对话"):
                conversation.save(self.path)
            self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_client_s_nan_is_refused_and_not_written(self) -> None:
        conversation = Conversation(
            ScriptedModel(response({"type": "odd", "x": float("nan")}, message("1"))), [], CONFIG
        )
        conversation.ask("q")
        with self.assertRaisesRegex(MiniPiError, "无法保存对话"):
            conversation.save(self.path)
        self.assertEqual(list(self.folder.iterdir()), [])


def saved(*items: Any, **more: Any) -> str:
    return json.dumps({"version": 1, "history": items, **more})


OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}


@table(
    [
        ("empty", "", "不是完整的 JSON"),
        ("half", saved(user("q"))[:40], "不是完整的 JSON"),
        ("text_behind", saved() + "x", "不是完整的 JSON"),
        ("not_utf_8", b'{"version": 1, "history": ["\xff"]}', "不是完整的 JSON"),
        ("utf_16", saved().encode("utf-16"), "不是完整的 JSON"),
        ("binary", bytes(range(256)), "不是完整的 JSON"),
        ("nan", '{"version": 1, "history": [{"x": NaN}]}', "NaN"),
        ("number_too_long", '{"version": 1, "history": [{"x": ' + "1" * 5000 + "}]}", "太长"),
        ("key_twice", '{"version": 1, "version": 1, "history": []}', "重复的键"),
        ("nested_too_deep", "[" * 100_000, "嵌套"),
        ("list", "[]", "版本是 None"),
        ("null", "null", "版本是 None"),
        ("no_version", '{"history": []}', "版本是 None"),
        ("later_version", saved(version=2), "版本是 2，这里只认识 1"),
        ("version_true", saved(version=True), "版本是 True"),
        ("version_a_fraction", saved(version=1.0), "版本是 1.0"),
        ("version_a_string", saved(version="1"), "版本是 '1'"),
        ("no_history", '{"version": 1}', "没有 history"),
        ("history_an_object", '{"version": 1, "history": {}}', "没有 history"),
        ("history_of_strings", saved("q"), "没有 history"),
        ("call_without_an_output", saved(user("q"), call("look", {})), "没有配对：call_1"),
        (
            "call_answered_by_another_kind",
            saved(call("look"), {**OUTPUT, "type": "odd_output"}),
            "没有配对：call_1",
        ),
        ("output_without_a_call", saved(user("q"), OUTPUT), "没有配对：call_1"),
        ("output_before_its_call", saved(OUTPUT, call("look", {})), "没有配对：call_1、call_1"),
        ("two_outputs_for_a_call", saved(call("look", {}), OUTPUT, OUTPUT), "没有配对：call_1"),
        ("output_without_a_call_id", saved({"type": "function_call_output", "output": ""}), "没有配对：None"),
        (
            "call_without_a_call_id",
            saved({"type": "function_call", "name": "look", "arguments": "{}"}),
            "缺少 call_id",
        ),
        ("call_with_a_number_as_call_id", saved({**call("look"), "call_id": 1}), "缺少 call_id"),
        ("call_without_a_name", saved({**call("look"), "name": None}, OUTPUT), "缺少 name"),
        (
            "call_with_half_its_arguments",
            saved({**call("look"), "arguments": '{"a'}, OUTPUT),
            "在参数中间断开",
        ),
    ]
)
class LoadingWhatIsBroken(Files):
    def row(self, content: str | bytes, reason: str) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.path.write_bytes(data)
        self.path.chmod(0o640)
        with self.assertRaises(MiniPiError) as caught:
            self.load()
        self.assertIs(type(caught.exception), MiniPiError)
        said = str(caught.exception)
        self.assertIn(f"对话文件 {self.path} 不能用，没有改动它：", said)
        self.assertIn(reason, said)
        self.assertNotIn("。。", said)
        self.assertTrue(said.endswith("请检查路径，或换一个文件。"))
        self.assertEqual(self.path.read_bytes(), data)
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o640)
        self.assertEqual(len(list(self.folder.iterdir())), 1)


class Loading(Files):
    def test_a_file_that_is_missing_or_a_folder_is_named_with_the_reason(self) -> None:
        for path, reason in ((self.path, "No such file"), (self.folder, "directory"), (Path("a\0b"), "null")):
            with self.subTest(path=path), self.assertRaises(MiniPiError) as caught:
                self.load(path)
            self.assertIn(f"对话文件 {path} 不能用", str(caught.exception))
            self.assertIn(reason, str(caught.exception))

    def test_a_call_id_used_again_in_a_later_turn_is_accepted(self) -> None:
        self.path.write_text(saved(user("q"), *[call("look"), OUTPUT] * 2))
        self.assertEqual(self.load().ask("and?"), "75")

    def test_unknown_items_and_further_fields_of_the_document_are_accepted(self) -> None:
        self.path.write_text(saved(user("q"), {"type": "odd"}, note="by hand"))
        self.assertEqual(self.load().history, [user("q"), {"type": "odd"}])

    def test_settings_are_checked_and_events_arrive_as_in_a_new_one(self) -> None:
        self.conversation.save(self.path)
        with self.assertRaisesRegex(MiniPiError, "工具重名"):
            Conversation.load(self.path, ScriptedModel(), [look(), look()], CONFIG)
        events: list[AgentEvent] = []
        Conversation.load(self.path, ScriptedModel(*answers("1")), [look()], CONFIG, events.append).ask("q")
        self.assertEqual([event.type for event in events], ["assistant_text", "turn_end"])


class ManyAtOnce(unittest.TestCase):
    def test_32_conversations_in_32_threads_share_one_client_and_mix_nothing_up(self) -> None:
        together = threading.Barrier(32, timeout=30)

        def reply(request: Request) -> JsonObject:
            items = request.json["input"]
            asked = [item["content"][0]["text"] for item in items if item.get("role") == "user"]
            if items[-1].get("type") == "function_call_output":
                return response(message(f"{items[-1]['output']} after {len(asked)}"))
            return response(call("look", {"at": asked[-1]}, f"call_{len(items)}"))

        with ScriptedServer(reply, forever=True) as server:
            client = ResponsesClient(server.url, timeout=60)

            def talk(number: int) -> list[str]:
                tool = look(lambda arguments: f"seen {arguments['at']}")
                conversation = Conversation(client, [tool], CONFIG)
                together.wait()
                return [conversation.ask(f"{number}.{each}") for each in range(3)]

            with ThreadPoolExecutor(32) as pool:
                talks = list(pool.map(talk, range(32)))
            self.assertEqual(len(server.requests), 32 * 3 * 2)
        expected = [[f"seen {number}.{each} after {each + 1}" for each in range(3)] for number in range(32)]
        self.assertEqual(talks, expected)


if __name__ == "__main__":
    raise SystemExit(harness.main())
