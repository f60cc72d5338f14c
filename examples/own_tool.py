"""A tool of one's own: a name, what the model is told, and a function of the checked arguments."""

from argparse import Namespace
from dataclasses import replace
from datetime import date

from examples.common import connect, report, run
from packages.pi_agent import AgentTool, run_agent
from packages.qianchat.terminal import printable

NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
today = AgentTool(
    "today", "查询今天的日期和星期", NOTHING, lambda arguments: f"今天是 {date.today():%Y-%m-%d %A}。"
)
QUESTION = "今天是几月几日，星期几？"
INSTRUCTIONS = "需要实时数据时调用工具；工具结果里有答案时，直接用文字回答。"


def step(args: Namespace) -> str:
    """The loop of step 4 with another tool and other instructions; nothing else is different."""
    client, config = connect(args)
    config = replace(config, instructions=INSTRUCTIONS, answer_after_repeat=False)
    answer = run_agent(client, [today], config, args.question, report)
    print(f"\n{printable(answer)}")
    return answer


if __name__ == "__main__":
    raise SystemExit(run(step, QUESTION))
