"""Runs one client's agent run and prints what it cost; shared by all of them, standard library only.

Each client is a script `NAME.py URL TURNS SIZE MODE`, whose run(url, turns, size) makes one whole run.
MODE warm: a short run first, then the measured one. MODE cold: one run and out, measured from outside.
"""

import json
import resource
import sys
import time
from collections.abc import Callable

INSTRUCTIONS = "You answer from files. Call read to get a file."
QUESTION = "What do the files say?"
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "path of the file"}},
    "required": ["path"],
    "additionalProperties": False,
}


def tool_result(path: str, size: int) -> str:
    """What the tool gives back: size bytes of ASCII that differ from call to call."""
    line = f"{path} 2026-09-06 orders 128 revenue 9600; "
    return (line * (size // len(line) + 1))[:size]


def main(run: Callable[[str, int, int], object]) -> None:
    url, turns, size, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if mode == "cold":
        run(url, turns, size)
        return
    import urllib.request  # not above: a cold start is to pay for no import that its client does without

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(f"{url}/reset/3", b"").read()
    run(url, 3, size)
    opener.open(f"{url}/reset/{turns}", b"").read()
    wall, cpu = time.perf_counter(), time.process_time()
    answer = run(url, turns, size)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    stats = json.loads(opener.open(f"{url}/stats").read())
    assert "done" in str(answer), answer
    assert stats["asked"] == turns, stats
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"wall": wall, "cpu": cpu, "peak_kib": peak, **stats}))
