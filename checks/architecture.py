"""The house rules of design.md, each proven on the tree as it is and on a planted violation.

A rule is a function from the root of a tree to the list of what breaks it, each with its place.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tempfile
import tokenize
import tomllib
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path

from checks.support.harness import main, table

ROOT = Path(__file__).resolve().parent.parent

# Who may import whom: each room those before it, and itself.
ROOMS = ("pi_ai", "pi_agent", "pi_coding_agent", "qianchat", "examples", "checks")

# All lines of a package, docstrings included: what design.md allows, and what was agreed since. Growth past
# the first number needs a reason in CHANGELOG.md.
BUDGETS = {"pi_ai": (450, 1450), "pi_agent": (750, 1300), "pi_coding_agent": (350, 360)}
LOOP_BODY = 60

IMPORT_MILLISECONDS, IMPORT_MEGABYTES = 60, 15
HEAVY = {
    "asyncio",
    "email",
    "http.client",
    "logging",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.request",
}

# Spelled so that this file does not break the rule that they make.
FORBIDDEN_TEXT = {
    "registry host": r"py[p]i\.org|pythonhosted\.org|npmj[s]\.(org|com)|deb\.debian\.org|crates\.i[o]\b",
    "machine path": r"(?<![\w.])/(work|farm|root|opt|home/\w+|Users/\w+|tmp/bash_jobs)/",
    "key": r"\b(sk-(\w+-)?[A-Za-z0-9]{20,}|gh[pousr]_\w{30,}|hf_\w{30,}|AKIA[A-Z0-9]{16})|PRIVATE[ ]KEY-----",
    "unfinished work": r"\b(TO[D]O|FIX[M]E)\b",
}

CHINESE = re.compile("[\u3001-\u303f\u3400-\u9fff\uff01-\uff5e]")
QUOTED = re.compile(r"`[^`]*`|「[^」]*」|“[^”]*”|\"[^\"]*\"")

Rule = Callable[[Path], list[str]]


def sources(root: Path, *rooms: str) -> Iterator[tuple[str, str, Path]]:
    """Room, module name and file of all our Python, or of these rooms alone."""
    for room in rooms or ROOMS:
        folder = root / room if room in ("examples", "checks") else root / "packages" / room
        for file in sorted(folder.rglob("*.py")):
            module = ".".join(file.relative_to(root).with_suffix("").parts)
            yield room, module.removesuffix(".__init__"), file


def parsed(file: Path) -> ast.Module:
    return parsed_text(file.read_text("utf-8"))


@functools.cache
def parsed_text(text: str) -> ast.Module:
    return ast.parse(text)


def imports(module: str, file: Path) -> Iterator[tuple[int, int, str]]:
    """Line, level and full name of everything imported anywhere in a file, `from` names included."""
    package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, 0, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield node.lineno, node.level, ".".join([*base, alias.name])


def arrows(root: Path) -> list[str]:
    """Imports point one way: examples, checks → qianchat → pi_coding_agent → pi_agent → pi_ai."""
    broken = []
    for room, module, file in sources(root):
        for line, _, name in imports(module, file):
            parts = name.split(".")
            target = parts[1] if parts[0] == "packages" and len(parts) > 1 else parts[0]
            if target in ROOMS and ROOMS.index(target) > ROOMS.index(room):
                broken.append(f"{module}:{line} imports {name}")
    return broken


def rooms_know_their_place(root: Path) -> list[str]:
    """HTTP is known to pi_ai and qianchat, the loop to none below qianchat but pi_agent itself."""
    broken = []
    for room, module, file in sources(root, "pi_agent", "pi_coding_agent", "examples"):
        for line, _, name in imports(module, file):
            if name.split(".")[0] in ("http", "urllib", "socket", "ssl", "asyncio"):
                broken.append(f"{module}:{line} imports {name}")
            if room == "pi_coding_agent" and re.search(r"pi_agent\.(loop|conversation|run_agent|Conv)", name):
                broken.append(f"{module}:{line} imports {name}")
    return broken


def standard_library_only(root: Path) -> list[str]:
    """Every import is the standard library or ours; inside packages/ ours is relative.

    What checks.overhead measures runs in a venv of its own, and is no part of this.
    """
    broken = []
    ours = ("packages", "examples", "checks")
    for room, module, file in sources(root):
        if module.startswith("checks.overhead.peers."):
            continue
        for line, level, name in imports(module, file):
            top = name.split(".")[0]
            inside = module.startswith("packages.")
            if level == 0 and top not in sys.stdlib_module_names and (inside or top not in ours):
                broken.append(f"{module}:{line} imports {name}")
            if level > 0 and inside and not name.startswith("packages."):
                broken.append(f"{module}:{line} leaves packages")
        for node in ast.walk(parsed(file)) if room != "checks" else ():
            if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith(
                ("__import__", "import_module")
            ):
                broken.append(f"{module}:{node.lineno} imports what cannot be read here")
    return broken


def no_dependencies(root: Path) -> list[str]:
    """pyproject.toml asks for nothing at run time and installs every package with its data."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    setuptools = project["tool"]["setuptools"]
    folders = {file.parent.relative_to(root) for file in (root / "packages").rglob("*.py")}
    missing = {".".join(["mini_pi", *folder.parts[1:]]) for folder in folders} - set(setuptools["packages"])
    broken = [f"pyproject.toml: {name} is not installed" for name in sorted(missing)]
    if project["project"]["dependencies"]:
        broken.append(f"pyproject.toml: dependencies are {project['project']['dependencies']}")
    if not (root / "packages" / "py.typed").exists():
        broken.append("packages/py.typed is missing")
    return broken


# Run in a process of its own. What the import system does is not ours; what runs because of a line of ours is.
IMPORT_ALL = """
import importlib, os, sys
root = sys.argv[1] + os.sep
sys.path.insert(0, root)
watched = ("open", "os", "socket", "subprocess", "shutil", "tempfile", "urllib", "http", "pty", "_thread", "ctypes")

def note(event):
    frame = sys._getframe(1)
    while frame and "importlib" not in frame.f_code.co_filename:
        if frame.f_code.co_filename.startswith(root):
            return print(f"{frame.f_code.co_filename[len(root):]}:{frame.f_lineno} {event}")
        frame = frame.f_back

class Environment(type(os.environ)):
    def __getitem__(self, key):
        note("os.environ")
        return super().__getitem__(key)
    def __iter__(self):
        note("os.environ")
        return super().__iter__()

environment = object.__new__(Environment)
environment.__dict__.update(os.environ.__dict__)
os.environ = environment
sys.addaudithook(lambda event, _: event.split(".")[0] in watched and note(event))
for module in sys.argv[2:]:
    importlib.import_module(module)
"""


def nothing_happens_at_import(root: Path) -> list[str]:
    """Importing any module opens, reads, starts and prints nothing."""
    modules = [module for room, module, _ in sources(root) if room != "checks"]
    command = [sys.executable, "-c", IMPORT_ALL, str(root.resolve()), *modules]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, encoding="utf-8")
    return done.stdout.splitlines() + done.stderr.splitlines()[-1:]


def budgets(root: Path) -> list[str]:
    """No package is longer than agreed, and one that is longer than designed says why in the changelog."""
    changelog = root / "CHANGELOG.md"
    reasons = changelog.read_text("utf-8") if changelog.exists() else ""
    broken = []
    for room, (designed, agreed) in BUDGETS.items():
        lines = sum(len(file.read_text("utf-8").splitlines()) for _, _, file in sources(root, room))
        if lines > agreed:
            broken.append(f"{room} has {lines} lines, agreed are {agreed}")
        if lines > designed and not re.search(rf"\b{room}\b[^\n]*\blines\b", reasons):
            broken.append(
                f"{room} has {lines} lines, designed are {designed}, and CHANGELOG.md gives no reason"
            )
    return broken


def loop_fits_a_page(root: Path) -> list[str]:
    """The body of run_agent, without its docstring."""
    for node in ast.walk(parsed(root / "packages/pi_agent/loop.py")):
        if isinstance(node, ast.FunctionDef) and node.name == "run_agent":
            lines = (node.end_lineno or 0) - node.body[1].lineno + 1
            return [f"run_agent has {lines} lines, allowed are {LOOP_BODY}"] if lines > LOOP_BODY else []
    return ["run_agent is gone"]


def documented(root: Path) -> list[str]:
    """Every module, and every public class and function in it, has a docstring."""
    broken = []
    for _, module, file in sources(root, *ROOMS[:-1]):
        tree = parsed(file)
        broken += [] if ast.get_docstring(tree) else [f"{module} has no docstring"]
        found: list[ast.stmt] = list(tree.body)
        while found:
            node = found.pop()
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                found += node.body
            stub = isinstance(node.body[-1], ast.Expr) and ast.unparse(node.body[-1]) == "..."
            if not ast.get_docstring(node) and not stub:
                broken.append(f"{module}:{node.lineno} {node.name} has no docstring")
    return sorted(broken)


def english_code(root: Path) -> list[str]:
    """Names are ASCII; comments and docstrings hold no Chinese but what they quote."""
    broken = []
    for _, module, file in sources(root):
        text = file.read_text("utf-8")
        remarks = [
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                line = 1 if isinstance(node, ast.Module) else node.lineno
                remarks.append((line, ast.get_docstring(node) or ""))
            names = (getattr(node, field, None) for field in ("id", "name", "attr", "arg"))
            for name in names:
                if isinstance(name, str) and not name.isascii():
                    broken.append(f"{module}:{getattr(node, 'lineno', 1)} is named {name}")
        broken += [
            f"{module}:{line} remarks in Chinese"
            for line, words in remarks
            if CHINESE.search(QUOTED.sub("", words))
        ]
    return broken


def chinese_messages(root: Path) -> list[str]:
    """An error's or a flag's words are Chinese, where they stand in the call that raises or adds it."""
    broken = []
    for _, module, file in sources(root, *ROOMS[:-1]):
        for node in ast.walk(parsed(file)):
            texts: list[ast.expr] = []
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                texts = node.exc.args[:1]
            elif isinstance(node, ast.Call):
                texts = [word.value for word in node.keywords if word.arg in ("help", "description")]
            for text in texts:
                words = [each.value for each in ast.walk(text) if isinstance(each, ast.Constant)]
                message = "".join(word for word in words if isinstance(word, str))
                if " " in message and not CHINESE.search(message):
                    broken.append(f"{module}:{text.lineno} says {ast.unparse(text)[:40]}")
    return broken


def readmes_agree(root: Path) -> list[str]:
    """README.md and README.zh-CN.md show the same code blocks in the same order, comments included."""
    blocks = []
    for name in ("README.md", "README.zh-CN.md"):
        if not (root / name).exists():
            return [f"{name} is missing"]
        blocks.append(re.findall(r"^```.*?^```$", (root / name).read_text("utf-8"), re.DOTALL | re.MULTILINE))
    english, chinese = blocks
    if len(english) != len(chinese) or not english:
        return [f"README.md has {len(english)} code blocks, README.zh-CN.md {len(chinese)}"]
    pairs = enumerate(zip(english, chinese, strict=True), 1)
    return [f"code block {n} differs, README.md: {one!r}" for n, (one, other) in pairs if one != other]


def commands_exist(root: Path) -> list[str]:
    """Each `python3 -m` of ours in a document names a module that is there; NAME in capitals stands for one."""
    broken = []
    for document in sorted(root.glob("*.md")):
        text = document.read_text("utf-8")
        for name in re.findall(r"python3? -m ((?:checks|examples|packages)(?:\.\w+)*)", text):
            path = root.joinpath(*name.split("."))
            runs = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
            if not runs and not name.split(".")[-1].isupper():
                broken.append(f"{document.name} runs {name}, which does not exist")
    return broken


def clean_text(root: Path) -> list[str]:
    """No tracked text file names a registry host, a path of some machine, a key or work left for later."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0:
        files = [root / name.decode() for name in listed.stdout.split(b"\0") if name]
    else:
        files = [file for file in sorted(root.rglob("*")) if "__pycache__" not in file.parts]
    broken = []
    for file in files:
        if not file.is_file() or b"\0" in (data := file.read_bytes()):
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for what, pattern in FORBIDDEN_TEXT.items():
                if re.search(pattern, line):
                    broken.append(f"{file.relative_to(root)}:{number} {what}")
    return broken


def every_check_is_run(root: Path) -> list[str]:
    """A module with tests is listed in checks/__main__.py or checks/soak.py, or CI runs it by name."""
    known = "".join(
        (root / file).read_text("utf-8") for file in ("checks/__main__.py", "checks/soak.py", ".ci/run")
    )
    broken = []
    for _, module, file in sources(root, "checks"):
        tests = re.search(r"def test_|^@table", file.read_text("utf-8"), re.MULTILINE)
        if tests and not re.search(rf"\b{file.stem}\b", known):
            broken.append(f"{module} is never run")
    return broken


# CPU time, since a busy machine stretches every other. The peak is read from /proc where there is one: a
# child's ru_maxrss begins with that of its parent.
IMPORT_COST = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
def peak():
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 2**10 for line in status if line.startswith("VmHWM"))
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
before, start = peak(), time.process_time()
import packages.pi_agent
print((time.process_time() - start) * 1000, peak() - before, *sys.modules)
"""


def cheap_import(root: Path) -> list[str]:
    """What `import packages.pi_agent` adds to bare Python, the best of five; nothing heavy is imported."""
    best_time = best_size = float("inf")
    modules: list[str] = []
    for _ in range(5):
        # -S: what this machine's site-packages load at start would hide what we load.
        command = [sys.executable, "-I", "-S", "-c", IMPORT_COST, str(root)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        milliseconds, megabytes, *modules = done.stdout.split()
        best_time, best_size = min(best_time, float(milliseconds)), min(best_size, float(megabytes))
        if best_time <= IMPORT_MILLISECONDS and best_size <= IMPORT_MEGABYTES:
            break
    broken = [f"pi_agent imports {name}" for name in sorted(HEAVY & set(modules))]
    if best_time > IMPORT_MILLISECONDS:
        broken.append(f"import takes {best_time:.0f} ms, allowed are {IMPORT_MILLISECONDS}")
    if best_size > IMPORT_MEGABYTES:
        broken.append(f"import takes {best_size:.1f} MB, allowed are {IMPORT_MEGABYTES}")
    return broken


RULES = (
    arrows,
    rooms_know_their_place,
    standard_library_only,
    no_dependencies,
    nothing_happens_at_import,
    budgets,
    loop_fits_a_page,
    documented,
    english_code,
    chinese_messages,
    readmes_agree,
    commands_exist,
    clean_text,
    every_check_is_run,
    cheap_import,
)


@table([(rule.__name__, rule) for rule in RULES])
class TheTree(unittest.TestCase):
    """The tree as it is breaks no rule."""

    def row(self, rule: Rule) -> None:
        broken = rule(ROOT)
        self.assertEqual(broken, [], "\n" + "\n".join([rule.__doc__ or "", *broken[:20]]))


AI, AGENT, CODING, QIANCHAT = (f"packages/{room}/planted.py" for room in ROOMS[:4])
DOC = '"""Planted."""\n'
SKELETON = {
    **{f"packages/{room}/__init__.py": DOC for room in ROOMS[:4]},
    **dict.fromkeys(("packages/__init__.py", "examples/__init__.py"), DOC),
    **dict.fromkeys(("checks/__main__.py", "checks/soak.py", ".ci/run"), DOC),
    "packages/py.typed": "",
    "packages/pi_agent/loop.py": f"{DOC}def run_agent():\n    {DOC}    return 1\n",
    "pyproject.toml": (ROOT / "pyproject.toml").read_text("utf-8"),
    "README.md": "```bash\npython3 -m checks\n```\n",
    "README.zh-CN.md": "```bash\npython3 -m checks\n```\n",
}
LONG = 'def run_agent():\n    """Planted."""\n' + "    x = 1\n" * 61


@table(
    [
        ("pi_ai_imports_the_loop", arrows, AI, "from ..pi_agent import run_agent", "pi_agent"),
        ("pi_ai_imports_a_package", arrows, AI, "from .. import qianchat", "qianchat"),
        ("pi_agent_imports_files", arrows, AGENT, "def f():\n    from ..pi_coding_agent import tools", ":2 "),
        ("pi_coding_agent_imports_the_chat", arrows, CODING, "import packages.qianchat.chat", "qianchat"),
        ("qianchat_imports_an_example", arrows, QIANCHAT, "from examples import common", "examples"),
        (
            "an_example_imports_a_check",
            arrows,
            "examples/planted.py",
            "import checks.support.harness",
            "checks",
        ),
        ("pi_agent_knows_http", rooms_know_their_place, AGENT, "import urllib.request", "urllib"),
        (
            "files_know_the_loop",
            rooms_know_their_place,
            CODING,
            "from ..pi_agent import run_agent",
            "run_agent",
        ),
        ("a_package_from_outside", standard_library_only, AI, "import requests", "requests"),
        (
            "a_check_from_outside",
            standard_library_only,
            "checks/planted.py",
            "from pytest import raises",
            "pytest",
        ),
        ("an_absolute_import", standard_library_only, AI, "from packages.pi_ai import errors", "pi_ai"),
        ("an_import_out_of_packages", standard_library_only, AI, "from ... import examples", "leaves"),
        (
            "a_hidden_import",
            standard_library_only,
            AI,
            "import importlib\nimportlib.import_module('x')",
            ":2 ",
        ),
        ("an_undeclared_package", no_dependencies, "packages/pi_new/__init__.py", DOC, "mini_pi.pi_new"),
        ("a_file_that_is_read", nothing_happens_at_import, AI, "open(__file__).close()", "planted.py:1 open"),
        (
            "a_file_that_is_written",
            nothing_happens_at_import,
            AI,
            "open(__file__ + 'x', 'w').close()",
            "open",
        ),
        (
            "a_directory",
            nothing_happens_at_import,
            AI,
            "import pathlib\nlist(pathlib.Path().iterdir())",
            ":2 os",
        ),
        ("a_socket", nothing_happens_at_import, AI, "import socket\nsocket.socket().close()", ":2 socket"),
        ("a_process", nothing_happens_at_import, AI, "import os\nos.system('true')", ":2 os.system"),
        ("the_environment", nothing_happens_at_import, AI, "import os\nos.environ.get('X')", ":2 os.environ"),
        (
            "getenv",
            nothing_happens_at_import,
            QIANCHAT,
            "from os import getenv\ngetenv('X')",
            ":2 os.environ",
        ),
        (
            "the_home_directory",
            nothing_happens_at_import,
            QIANCHAT,
            "import pathlib\npathlib.Path.home()",
            ":2 os",
        ),
        ("a_word", nothing_happens_at_import, AI, "print('hello')", "hello"),
        ("a_bug", nothing_happens_at_import, AI, "1 / 0", "ZeroDivisionError"),
        ("a_long_package", budgets, AI, "#\n" * 1500, "agreed"),
        ("growth_without_a_reason", budgets, CODING, "#\n" * 360, "no reason"),
        ("a_long_loop", loop_fits_a_page, "packages/pi_agent/loop.py", LONG, "61 lines"),
        ("a_lost_loop", loop_fits_a_page, "packages/pi_agent/loop.py", DOC, "gone"),
        ("a_bare_module", documented, AI, "x = 1", "planted has no docstring"),
        ("a_bare_function", documented, AI, f"{DOC}def f():\n    return 1", "f has no docstring"),
        (
            "a_bare_method",
            documented,
            AI,
            f"{DOC}class A:\n    {DOC}\n    def f(self):\n        return 1",
            "f has no",
        ),
        ("a_chinese_comment", english_code, AI, "x = 1  # 一", "planted:1"),
        ("a_chinese_docstring", english_code, AI, 'def f():\n    """做事。"""', "planted:1"),
        ("a_chinese_name", english_code, AI, "订单 = 1", "订单"),
        ("an_english_error", chinese_messages, AI, "raise ValueError(f'bad {x}')", "planted:1"),
        ("an_english_help", chinese_messages, QIANCHAT, "add('--x', help='the x')", "planted:1"),
        ("a_readme_that_differs", readmes_agree, "README.md", "```bash\nls  # all\n```\n", "code block"),
        (
            "a_command_that_is_gone",
            commands_exist,
            "README.md",
            "`python3 -m checks.nothing`",
            "checks.nothing",
        ),
        ("a_registry", clean_text, "notes.md", "see https://py" + "pi.org/x", "notes.md:1 registry host"),
        ("a_path", clean_text, "evidence/run.json", '{"path": "/wo' + 'rk/main/x"}', "machine path"),
        ("a_home", clean_text, "examples/planted.py", "x = '/home/" + "ann/x'", "machine path"),
        ("a_key", clean_text, "notes.md", "sk-" + "a1" * 12, "notes.md:1 key"),
        ("a_note_to_self", clean_text, AI, "\n# TO" + "DO later", "planted.py:2 unfinished work"),
        (
            "a_check_that_nobody_runs",
            every_check_is_run,
            "checks/planted.py",
            "def test_x(): ...",
            "never run",
        ),
        (
            "a_slow_import",
            cheap_import,
            "packages/__init__.py",
            "import time\nwhile time.process_time() < 0.15: pass",
            "ms",
        ),
        ("a_fat_import", cheap_import, "packages/__init__.py", "fat = b'x' * 20_000_000", "MB"),
        ("a_heavy_import", cheap_import, "packages/__init__.py", "import asyncio", "asyncio"),
    ]
)
class Planted(unittest.TestCase):
    """Each rule sees what breaks it."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name).resolve()
        for path, text in SKELETON.items():
            self.plant(path, text)

    def plant(self, path: str, text: str) -> None:
        file = self.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def row(self, rule: Rule, path: str, text: str, told: str) -> None:
        self.plant(path, text)
        broken = rule(self.tree)
        self.assertTrue(any(told in each for each in broken), f"{told!r} is not in {broken}")

    def test_without_anything_planted_no_rule_complains(self) -> None:
        for rule in RULES:
            with self.subTest(rule.__name__):
                self.assertEqual(rule(self.tree), [])

    def test_a_missing_readme_is_no_agreement(self) -> None:
        (self.tree / "README.zh-CN.md").unlink()
        self.assertEqual(readmes_agree(self.tree), ["README.zh-CN.md is missing"])

    def test_a_dependency(self) -> None:
        text = SKELETON["pyproject.toml"].replace("dependencies = []", 'dependencies = ["x"]')
        self.plant("pyproject.toml", text)
        self.assertEqual(no_dependencies(self.tree), ["pyproject.toml: dependencies are ['x']"])

    def test_growth_with_its_reason_is_allowed_up_to_what_was_agreed(self) -> None:
        designed, agreed = BUDGETS["pi_ai"]
        self.plant("CHANGELOG.md", f"- pi_ai has {designed + 1} lines, not {designed}: …\n")
        self.plant(AI, "#\n" * designed)
        self.assertEqual(budgets(self.tree), [])
        self.plant(AI, "#\n" * agreed)
        self.assertEqual(budgets(self.tree), [f"pi_ai has {agreed + 1} lines, agreed are {agreed}"])


if __name__ == "__main__":
    raise SystemExit(main())
