"""24 questions about the files of a small shop."""

from __future__ import annotations

import shutil
from pathlib import Path

from checks.support.real_model import Task

SHOP = Path(__file__).parent.parent / "fixtures" / "shop"
DAYS = {day: f"reports/daily-2026-09-{day:02d}.json" for day in (1, 2, 4, 5)}
MONTHS = ("reports/monthly/2026-07.json", "reports/monthly/2026-08.json")

NONE = (
    "没有|不存在|未找到|找不到|没找到|无法找到|no such|not exist|not found|no report|no daily|no data|no file"
    "|not available|not have|no information|there is no|couldn't find|could not find|cannot find"
)
TOO_LARGE = "太大|过大|超过|too large|too big|exceed"
# The first of September ahead of the second, and August ahead of July, said in the ways that say just that.
_1, _2 = "(?:9月1日|2026-09-01|112)", "(?:9月2日|2026-09-02|96)"
MORE_ON_THE_1ST = f"~{_1}[^。,;\\n比]*(?:更|较|最)多|(?:更|较|最)多的[^。,;\\n]*{_1}|{_1}[^。,;\\n]*比{_2}[^。,;\\n]*多|{_1}[^。,;\\n]*多于"
MORE_ON_THE_2ND = f"~{_2}[^。,;\\n比]*(?:更|较|最)多|(?:更|较|最)多的[^。,;\\n]*{_2}|{_2}[^。,;\\n]*比{_1}[^。,;\\n]*多|{_2}[^。,;\\n]*多于"
MORE_IN_AUGUST = (
    "~august[^.;\\n]*more|more orders[^.;\\n]*in august|08[^.;\\n]*more"
    "|(?<!\\d)(?:8月|2026-08)[^。,;\\n比]*(?:更|较|最)多"
)
MORE_IN_JULY = (
    "~(?<!than )(?<!than in )july[^.;,\\n]*more|more orders[^.;,\\n]* in july|07[^.;,\\n]*more"
    "|(?<!\\d)(?:7月|2026-07)[^。,;\\n比]*(?:更|较|最)多"
)

TASKS = (
    # one fact
    Task(
        "one_fact_zh",
        "reports/daily-2026-09-04.json 里的订单数是多少？",
        ("140",),
        ("112", "96", "131"),
        (DAYS[4],),
    ),
    Task(
        "one_fact_en",
        "What was the revenue on 2026-09-02? The daily reports are in the reports directory.",
        ("7296",),
        ("8400", "11200", "9432"),
        (DAYS[2],),
    ),
    Task(
        "csv_zh",
        "看一下 inventory/stock.csv，陶瓷杯还有多少个？",
        ("86",),
        ("120", "340"),
        ("inventory/stock.csv",),
    ),
    Task(
        "csv_vague_en",
        "How many notebooks (笔记本) are in stock? Look in the inventory folder.",
        ("340",),
        ("86", "120"),
        ("inventory/stock.csv",),
    ),
    Task(
        "note_en",
        "According to the meeting note in the notes folder, who renews the warehouse lease?",
        ("grace",),
        ("leo",),
        ("notes/meeting-2026-09-02.md",),
    ),
    Task("log_zh", "logs/server.log 里的 ERROR 是什么原因？", ("超时",), ("81%",), ("logs/server.log",)),
    # two facts from one file
    Task(
        "note_zh",
        "notes 目录里的促销计划，打几折？预算是多少？",
        ("八五折|85折|8.5折|85%", "6000"),
        (),
        ("notes/促销计划.md",),
    ),
    Task(
        "two_facts_zh",
        "帮我看看 reports 里 9 月 5 日的日报，订单数和退款数各是多少？",
        ("131", "6"),
        ("140", "112"),
        (DAYS[5],),
    ),
    Task(
        "two_facts_en",
        "From the reports directory, tell me the orders and the new customers of September 1, 2026.",
        ("112", "17"),
        ("140", "131"),
        (DAYS[1],),
    ),
    Task("readme_zh", "这个项目的负责人是谁，哪天开业的？", ("陈静", "2024-03-18"), (), ("README.md",)),
    Task(
        "sixty_files_zh",
        "orders 目录里，37 号订单的顾客是谁？金额多少？",
        ("朱琳", "315"),
        ("钱伟",),
        ("orders/order-037.txt",),
    ),
    # a fact one or two folders down
    Task(
        "nested_en",
        "How many people work in the Tianjin store? Start from the stores directory.",
        ("11",),
        ("14", "9"),
        ("stores/north/tianjin.json",),
    ),
    Task(
        "nested_zh",
        "stores 目录里，苏州店的店长是谁？",
        ("周启明",),
        ("林岚", "高远"),
        ("stores/east/suzhou.json",),
    ),
    Task(
        "nested_month_zh",
        "reports 下面有月报，2026 年 8 月的营收是多少？",
        ("268400",),
        ("241500",),
        (MONTHS[1],),
    ),
    # the right day among several
    Task("right_day_zh", "9 月 4 日新增了多少顾客？", ("25",), ("17", "11", "19"), (DAYS[4],)),
    Task(
        "right_day_en",
        "Please check the reports: how many refunds were there on Sept 5?",
        ("6",),
        ("3", "131"),
        (DAYS[5],),
    ),
    # comparison of two files
    Task(
        "compare_zh",
        "比较 reports 里 9 月 1 日和 9 月 2 日的日报，哪天的订单更多？两天各是多少？",
        ("112", "96", MORE_ON_THE_1ST),
        (MORE_ON_THE_2ND,),
        (DAYS[1], DAYS[2]),
    ),
    Task(
        "compare_en",
        "In reports/monthly, which month of 2026 had more orders, July or August? Give both numbers.",
        ("3180", "3412", MORE_IN_AUGUST),
        (MORE_IN_JULY,),
        MONTHS,
    ),
    # a computed value
    Task("computed_zh", "9 月 1 日的日报在 reports 里，平均每单多少元？", ("75",), (), (DAYS[1],)),
    Task(
        "computed_en",
        "What is the total number of orders on 2026-09-04 and 2026-09-05 together? See the reports directory.",
        ("271",),
        (),
        (DAYS[4], DAYS[5]),
    ),
    # there is no such report, and a file that is too large
    Task(
        "absent_zh",
        "reports 里 9 月 3 日的日报，订单数是多少？",
        (NONE,),
        ("112", "96", "140", "131"),
        listed=("reports",),
    ),
    Task(
        "absent_en",
        "What was the revenue on 2026-10-01? Check the reports directory.",
        (NONE,),
        ("8400", "7296", "11200", "9432"),
        listed=("reports",),
    ),
    Task("too_large_zh", "logs/access.log 的第一行写了什么？", (TOO_LARGE,), ("get /item",)),
    # a listing question
    Task(
        "listing_en",
        "Which files are in the inventory folder?",
        ("stock.csv", "suppliers.csv"),
        ("readme.md",),
        listed=("inventory",),
    ),
)


def shop(scratch: Path) -> Path:
    """A copy of the fixture with the log that is too large to read, which nobody needs in the repository."""
    project = scratch / "shop"
    shutil.copytree(SHOP, project)
    lines = (f"2026-09-05 {8 + i // 75:02d}:{i % 60:02d} GET /item/{i * 37 % 900} 200\n" for i in range(1500))
    (project / "logs" / "access.log").write_text("".join(lines), encoding="utf-8")
    return project
