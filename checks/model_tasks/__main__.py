"""`python3 -m checks.model_tasks`: 24 questions about a shop's files, and 26 for tools of one's own.

Takes a server at QWEN_BASE_URL, or `--local-qwen`; minutes, so it is not part of `python3 -m checks`.
What was tried, and what it gave, is in checks/model_tasks.md.
"""

from checks.model_tasks import files, own_tools
from checks.support.real_model import TaskSet, main

SETS = (
    TaskSet("files", files.TASKS, 22, files.shop),
    TaskSet("own_tools", own_tools.TASKS, 24, files.shop),
)

if __name__ == "__main__":
    raise SystemExit(main("checks.model_tasks", "问真实模型，并给回答打分；每一套题几分钟。", SETS))
