"""Runs one program and ends it when our parent is gone; child.py starts this file as a script.

    python supervisor.py PARENT_ID GRACE_SECONDS PROGRAM [ARGUMENT …]

stdin is a pipe whose other end the parent holds, and it closes with the parent's last breath, SIGKILL included,
on every Unix. (Linux's PR_SET_PDEATHSIG fires already when the *thread* that forked ends.) Where a child that
the parent forked holds it too, our parent's id tells: an orphan gets another. Then the whole process group,
ours alone, is asked to end, and after GRACE_SECONDS made to.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time


def main(parent: int, grace: float, command: list[str]) -> int:
    """The program's exit status, 128 + n after signal n, 127 when it does not start."""
    # A handler, not SIG_IGN, which the program would inherit: we stay until it has ended.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]}: error: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_end_with_parent, args=(parent, grace), daemon=True).start()
    status = program.wait()
    return status if status >= 0 else 128 - status


def _end_with_parent(parent: int, grace: float) -> None:
    while os.getppid() == parent and not select.select([0], [], [], 0.5)[0]:
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(grace)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
