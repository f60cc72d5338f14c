"""Step 1: one request, no tool. The model can only ask for what it has not seen (article, part 2)."""

from argparse import Namespace

from examples.common import check_whole, connect, run, user_item
from packages.pi_ai import AgentRunError, output_text, response_output
from packages.qianchat.terminal import printable

INSTRUCTIONS = "你还没有获得本地日报的内容。请说明回答问题还需要什么信息，不要猜测日报数据。"


def step(args: Namespace) -> str:
    """Ask once, print the text."""
    client, config = connect(args)
    response = client.create(
        {
            "model": config.model,
            "instructions": INSTRUCTIONS,
            "tools": [],
            "store": False,
            **config.request_options,
            "input": [user_item(args.question)],
        }
    )
    output = response_output(response)
    check_whole(response, output, config)
    text = output_text(output, response)
    if not text.strip():
        raise AgentRunError("模型没有返回文本。请重试，或检查模型服务。")
    print(printable(text))
    return text


if __name__ == "__main__":
    raise SystemExit(run(step))
