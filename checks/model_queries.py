"""`python3 -m checks.model_queries`: five ways to ask the article's question, put to the real model.

Takes a server at QWEN_BASE_URL, or `--local-qwen`; minutes, so it is not part of `python3 -m checks`.
"""

from __future__ import annotations

from pathlib import Path

from checks.support.real_model import Task, TaskSet, main

SAMPLE_PROJECT = Path(__file__).parent.parent / "sample_project"
FACTS = ("2026-09-06", "128", "9600")
READ = ("reports/daily-2026-09-06.json",)

QUERIES = (
    ("article", "帮我看看 reports 目录里的日报，告诉我这份日报的日期、订单数和营收。"),
    ("exact_zh", "读取 reports/daily-2026-09-06.json，给出日期、订单数和营收。"),
    ("vague_zh", "日报里写了什么？我想知道哪天、多少订单、收入多少。"),
    (
        "exact_en",
        "Look in the reports directory, read the daily report and tell me its date, orders and revenue.",
    ),
    ("vague_en", "How did the shop do? I'd like the day, the orders and the revenue from the daily report."),
)
TASKS = tuple(Task(name, question, FACTS, read=READ) for name, question in QUERIES)

SET = TaskSet("queries", TASKS, 5, lambda _: SAMPLE_PROJECT)

if __name__ == "__main__":
    raise SystemExit(main("checks.model_queries", "文章的问题，五种问法，要全部答对。", [SET]))
