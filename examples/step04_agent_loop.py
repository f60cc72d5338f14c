"""Step 4: the loop takes over, and the query is answered from the file (article, parts 5 to 7)."""

from argparse import Namespace

from examples.common import MAX_FILE_BYTES, connect, report, run
from packages.pi_agent import run_agent
from packages.pi_coding_agent.tools import ProjectFiles, create_project_tools
from packages.qianchat.terminal import printable


def step(args: Namespace) -> str:
    """Put together the model, the loop and the file tools."""
    client, config = connect(args)

    with ProjectFiles(args.project, MAX_FILE_BYTES) as files:
        answer = run_agent(client, create_project_tools(files), config, args.question, report)

    print(f"\n{printable(answer)}")
    return answer


if __name__ == "__main__":
    raise SystemExit(run(step))
