"""`python3 -m checks.overhead [--peers]`: what the library costs beside a naive urllib loop, as ratios.

All clients run against one scripted server on loopback, in turn, so that a busy machine hits each
alike; each number is the least of several runs. With --peers, each peer is installed, pinned, into a
virtual environment of its own in the cache. Exit status 1 when a target of issue 5 is missed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from packages.pi_ai import JsonObject, MiniPiError
from packages.qianchat.arguments import Parser, whole_number
from packages.qianchat.record import command_line, write_record
from packages.qianchat.server.cache import cache_dir
from packages.qianchat.terminal import short_error

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
KIB = 1024


class Client(NamedTuple):
    """script: in peers/; imports: what its user imports; requirement: pinned, empty for none."""

    script: str
    imports: str
    requirement: str = ""


OURS = "mini_pi"
CLIENTS = {
    "naive urllib": Client("naive", "json, urllib.request"),
    OURS: Client("mini_pi", "packages.pi_agent"),
}
PEERS = {
    "openai SDK": Client("openai_sdk", "openai", "openai==3.57.0"),
    "openai-agents": Client("openai_agents", "agents", "openai-agents==0.24.0"),
    "pydantic-ai": Client("pydantic_ai_agent", "pydantic_ai", "pydantic-ai-slim[openai]==2.68.0"),
    "smolagents": Client("smolagents_agent", "smolagents", "smolagents[openai]==1.26.0"),
}

# (turns, bytes of a tool result): the share of the naive loop's CPU that is the target; None: no target.
RUNS: dict[tuple[int, int], float | None] = {
    (10, 2 * KIB): None,
    (20, 2 * KIB): 0.8,
    (50, 2 * KIB): None,
    (200, 2 * KIB): 0.3,
    (10, 32 * KIB): None,
    (50, 32 * KIB): None,
    (200, 32 * KIB): 0.15,
}
START_TARGET = 1.5


def main() -> int:
    parser = Parser(
        prog="python3 -m checks.overhead",
        description="这个库的开销，写成同一次运行里朴素 urllib 循环的几倍。",
    )
    parser.add_argument("--peers", action="store_true", help="也测同类库（装进缓存目录里的虚拟环境）")
    parser.add_argument(
        "--rounds", type=whole_number(1, 1000), default=5, metavar="N", help="每项测几次，取最小（默认 5）"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="把结果写成 JSON")
    args = parser.parse_args()
    try:
        clients = CLIENTS | (PEERS if args.peers else {})
        pythons = {name: python_for(client) for name, client in clients.items()}
        with scripted_server() as url:
            rows = measure_all(clients, pythons, url, args.rounds)
        missed = show(rows, list(clients))
        if args.record:
            document = {
                "version": 1,
                "command": command_line("checks.overhead", sys.argv[1:]),
                "python": platform.python_version(),
                "requirements": [client.requirement for client in clients.values() if client.requirement],
                "rows": rows,
            }
            write_record(args.record, document)
    except MiniPiError as error:
        print(short_error(error), file=sys.stderr)
        return 1
    return 1 if missed else 0


def measure_all(
    clients: dict[str, Client], pythons: dict[str, str], url: str, rounds: int
) -> list[JsonObject]:
    """One row per measurement: what, unit, target (a share of the naive loop's) and a value per client."""
    rows = []
    imports = [{name: start(pythons[name], ["-c", f"import {c.imports}"]) for name, c in clients.items()}
               for _ in range(rounds + 2)]  # fmt: skip
    rows += start_rows("import", imports)
    cold = [
        {name: start(pythons[name], script(c, url, 3, 2 * KIB, "cold"), url) for name, c in clients.items()}
        for _ in range(rounds + 2)
    ]
    rows += start_rows("three turns, cold", cold)
    for (turns, size), target in RUNS.items():
        label = f"{turns} turns, {size // KIB} KiB"
        seen = [
            {name: warm(pythons[name], c, url, turns, size) for name, c in clients.items()}
            for _ in range(rounds if turns < 200 else max(1, rounds // 2))
        ]
        columns = (("CPU", "cpu", 1e3 / turns, "ms/turn", target), ("time", "wall", 1e3 / turns, "ms/turn", None),
                   ("sent", "bytes", 1 / KIB, "KiB", None), ("peak memory", "peak_kib", 1 / KIB, "MiB", None))  # fmt: skip
        for what, key, factor, unit, aim in columns:
            values = {name: min(each[name][key] for each in seen) * factor for name in clients}
            rows.append({"what": f"{label}: {what}", "unit": unit, "target": aim, "values": values})
        print(f"{label}: measured", file=sys.stderr, flush=True)
    return rows


def start_rows(label: str, seen: list[dict[str, JsonObject]]) -> list[JsonObject]:
    """CPU, time and memory of a whole process, the least of each."""
    columns = (("CPU", "cpu", 1e3, "ms"), ("time", "wall", 1e3, "ms"), ("memory", "peak_kib", 1 / KIB, "MiB"))
    return [
        {
            "what": f"{label}: {what}",
            "unit": unit,
            "target": START_TARGET,
            "values": {name: min(each[name][key] for each in seen) * factor for name in seen[0]},
        }
        for what, key, factor, unit in columns
    ]


def start(python: str, arguments: list[str], url: str = "") -> JsonObject:
    """Run a whole process, bytecode already compiled, and return what it used."""
    if url:
        reset(url, 3)
    begin = time.perf_counter()
    child = subprocess.Popen([python, *arguments], env=environment(), cwd=CHECKOUT)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise MiniPiError(f"测量失败：{' '.join(arguments[:2])} 以 {child.returncode} 结束。请看上面的输出。")
    return {"cpu": used.ru_utime + used.ru_stime, "wall": wall, "peak_kib": used.ru_maxrss}


def warm(python: str, client: Client, url: str, turns: int, size: int) -> JsonObject:
    """One measured run in a process of its own."""
    command = [python, *script(client, url, turns, size, "warm")]
    done = subprocess.run(command, env=environment(), cwd=CHECKOUT, capture_output=True, text=True)
    if done.returncode:
        raise MiniPiError(f"测量失败：{client.script}\n{done.stderr[-600:]}")
    figures: JsonObject = json.loads(done.stdout.splitlines()[-1])
    return figures


def script(client: Client, url: str, turns: int, size: int, mode: str) -> list[str]:
    return [str(HERE / "peers" / f"{client.script}.py"), url, str(turns), str(size), mode]


def environment() -> dict[str, str]:
    """Ours is imported from the checkout; no peer reports home."""
    return os.environ | {"PYTHONPATH": str(CHECKOUT), "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def reset(url: str, turns: int) -> None:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(f"{url}/reset/{turns}", b"").read()


@contextmanager
def scripted_server() -> Iterator[str]:
    """The server as a process of its own, ended with the block."""
    command = [sys.executable, "-m", "checks.overhead.server"]
    server = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    finally:
        server.kill()
        server.wait()


def python_for(client: Client) -> str:
    """The interpreter for a client: ours, or that of a peer's own environment, made on first use."""
    if not client.requirement:
        return sys.executable
    folder = (
        cache_dir() / "peers" / "".join(c if c.isalnum() or c in "-." else "_" for c in client.requirement)
    )
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"installing {client.requirement} into the cache", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", client.requirement]
        if subprocess.run(pip).returncode:
            raise MiniPiError(f"无法安装 {client.requirement}。请检查网络，或去掉 --peers。")
        ready.touch()
    return str(python)


def show(rows: list[JsonObject], names: list[str]) -> list[str]:
    """Print the table; return the rows that missed their target or in which a peer is ahead."""
    naive, *others = names
    print(f"| | {naive} | " + " | ".join(others) + " | target |")
    print("|---" * (len(names) + 2) + "|")
    missed = []
    for row in rows:
        base = row["values"][naive]
        ratios = {name: row["values"][name] / base for name in others}
        target = row["target"]
        cells = " | ".join(f"{ratios[name]:.2f}" for name in others)
        aim = f"≤ {target:.2f}" if target else ""
        print(f"| {row['what']} | {base:.2f} {row['unit']} | {cells} | {aim} |")
        if (target and ratios[OURS] > target) or ratios[OURS] > min(ratios.values()) * 1.02:
            missed.append(row["what"])
    print("every target met" if not missed else "missed: " + "; ".join(missed))
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
