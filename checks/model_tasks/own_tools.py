"""26 questions for small tools of one's own, some of them beside the project files.

The tools are as a user would write them: a few lines each, with a typed schema and errors that name the remedy.
"""

from __future__ import annotations

import json
from typing import Any

from checks.model_tasks.files import NONE
from checks.support.real_model import Task
from packages.pi_agent import AgentTool
from packages.pi_ai import ToolError

OFFICE = "需要数据或要办事时调用工具；工具结果里有答案时，直接用文字回答。"
ENGLISH = (
    "You are a helpful assistant. Use the tools when you need data or have to do something, then answer."
)

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
ORDERS = {
    "SO-311": {"order_id": "SO-311", "customer_id": "C-9", "items": 3, "total_yuan": 450, "status": "已发货"},
    "SO-312": {"order_id": "SO-312", "customer_id": "C-4", "items": 1, "total_yuan": 89, "status": "待付款"},
}
CUSTOMERS = {
    "C-4": {"customer_id": "C-4", "name": "贺兰", "city": "宁波", "level": "银卡"},
    "C-9": {"customer_id": "C-9", "name": "Omar Diaz", "city": "Lyon", "level": "gold"},
}
PEOPLE = {"沈越": "U-52", "Nina Park": "U-77"}
TICKETS = {
    "U-52": [{"ticket": "T-1904", "title": "打印机卡纸", "state": "open"}],
    "U-77": [
        {"ticket": "T-1877", "title": "VPN drops", "state": "closed"},
        {"ticket": "T-1921", "title": "New laptop", "state": "open"},
    ],
}
FORECAST = {
    "成都": "成都：小雨，17 到 22 度",
    "大连": "大连：晴，9 到 15 度",
    "Oslo": "Oslo: snow, -3 to 1 °C",
}
PARTS = {"bolt-m6": 1450, "gasket-20": 38}
BATTERIES = {"north": 71, "south": 64, "roof": 18}


def tool(name: str, description: str, properties: dict[str, Any], handler: Any) -> AgentTool:
    """All properties are required, and there are no others."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return AgentTool(name, description, parameters, handler)


def _order(arguments: dict[str, Any]) -> str:
    found = ORDERS.get(arguments["order_id"])
    if found is None:
        raise ToolError(f"没有订单 {arguments['order_id']}。请告诉用户查无此单。")
    return json.dumps(found, ensure_ascii=False)


def _customer(arguments: dict[str, Any]) -> str:
    found = CUSTOMERS.get(arguments["customer_id"])
    if found is None:
        raise ToolError(f"没有客户 {arguments['customer_id']}；客户编号在 get_order 的结果里。")
    return json.dumps(found, ensure_ascii=False)


def _person(arguments: dict[str, Any]) -> str:
    if arguments["name"] not in PEOPLE:
        return f"no user is called {arguments['name']}"
    return json.dumps({"name": arguments["name"], "user_id": PEOPLE[arguments["name"]]}, ensure_ascii=False)


def _tickets(arguments: dict[str, Any]) -> str:
    if arguments["user_id"] not in TICKETS:
        raise ToolError("unknown user_id; get it from find_user first")
    return json.dumps(TICKETS[arguments["user_id"]], ensure_ascii=False)


def _forecast(arguments: dict[str, Any]) -> str:
    found = [line for city, line in FORECAST.items() if city.lower() in arguments["city"].lower()]
    return found[0] if found else f"没有 {arguments['city']} 的天气预报"


def _stock(arguments: dict[str, Any]) -> str:
    sku = arguments["sku"]
    if sku not in PARTS:
        raise ToolError(f"no sku {sku!r}. Known: {', '.join(PARTS)}. Call again with one of these.")
    return f"{sku}: {PARTS[sku]} pieces"


def _room(arguments: dict[str, Any]) -> str:
    if arguments["room"] == "A1":
        raise ToolError("A1 那天已被占用；B2 空着，请改订 B2。")
    screen = "带投影" if arguments["projector"] else "不带投影"
    return f"已预订 {arguments['room']}，{arguments['hours']} 小时，{screen}"


def _light(arguments: dict[str, Any]) -> str:
    return f"{arguments['room']}: light {'on' if arguments['on'] else 'off'}, {arguments['percent']} %"


def _statistics(arguments: dict[str, Any]) -> str:
    numbers = arguments["numbers"]
    return json.dumps({"sum": sum(numbers), "mean": sum(numbers) / len(numbers), "max": max(numbers)})


def _converted(arguments: dict[str, Any]) -> str:
    rate = {"yuan": 1.0, "euro": 7.8, "yen": 0.05}
    amount = arguments["amount"] * rate[arguments["source"]] / rate[arguments["target"]]
    return f"{amount:g} {arguments['target']}"


CURRENCY = {"type": "string", "enum": ["yuan", "euro", "yen"]}
TOOLS = {
    each.name: each
    for each in (
        tool("today", "今天的日期和星期", {}, lambda _: "2027-01-15，星期五"),
        tool(
            "disk_space", "Free and total disk space of this machine", {}, lambda _: "212 GB free of 480 GB"
        ),
        tool("weather", "查询一个城市明天的天气", {"city": TEXT}, _forecast),
        tool("get_order", "按订单号查询订单", {"order_id": TEXT}, _order),
        tool("get_customer", "按客户编号查询客户", {"customer_id": TEXT}, _customer),
        tool("find_user", "Find a user's id by their full name", {"name": TEXT}, _person),
        tool("list_tickets", "List the support tickets of a user", {"user_id": TEXT}, _tickets),
        tool(
            "multiply",
            "Multiply two numbers",
            {"a": {"type": "number"}, "b": {"type": "number"}},
            lambda arguments: f"{arguments['a'] * arguments['b']:g}",
        ),
        tool(
            "statistics",
            "Sum, mean and maximum of a list of numbers",
            {"numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1}},
            _statistics,
        ),
        tool(
            "convert",
            "换算货币",
            {"amount": {"type": "number"}, "source": CURRENCY, "target": CURRENCY},
            _converted,
        ),
        tool(
            "book_room",
            "预订会议室",
            {
                "room": TEXT,
                "hours": {"type": "integer", "minimum": 1},
                "projector": {"type": "boolean", "description": "是否需要投影"},
            },
            _room,
        ),
        tool(
            "set_light",
            "Switch the light of a room and set its brightness",
            {"room": TEXT, "on": {"type": "boolean"}, "percent": {"type": "integer"}},
            _light,
        ),
        tool("stock", "Pieces in stock of a part, by sku", {"sku": TEXT}, _stock),
        tool(
            "battery",
            "Charge of a sensor's battery in percent",
            {"sensor": {"type": "string", "enum": list(BATTERIES)}},
            lambda arguments: f"{arguments['sensor']}: {BATTERIES[arguments['sensor']]} %",
        ),
        tool("add_note", "记下一条备忘", {"text": TEXT}, lambda arguments: "已保存为第 12 条备忘"),
        tool(
            "send_mail",
            "Send a mail",
            {"to": TEXT, "subject": TEXT, "body": TEXT},
            lambda arguments: f"queued as M-5508 to {arguments['to']}",
        ),
    )
}


def own(name: str, question: str, tools: str, needed: Any, facts: Any, **rest: Any) -> Task:
    """A task of this set. tools: names, with blanks between them. needed: calls, as (name, arguments)."""
    instructions = ENGLISH if name.endswith("_en") else OFFICE
    offered = tuple(TOOLS[each] for each in tools.split())
    return Task(
        name, question, facts, needed=needed, tools=offered, files=False, instructions=instructions, **rest
    )


def beside_files(name: str, question: str, tools: str, needed: Any, facts: Any, **rest: Any) -> Task:
    """A task with these tools and the two file tools, over the shop, with the examples' own instructions."""
    offered = tuple(TOOLS[each] for each in tools.split())
    return Task(name, question, facts, needed=needed, tools=offered, **rest)


TASKS = (
    # no argument
    own(
        "no_argument_zh",
        "今天几号，星期几？",
        "today weather",
        (("today", {}),),
        ("2027-01-15", "星期五|周五"),
    ),
    own("no_argument_en", "How much disk space is free?", "disk_space", (("disk_space", {}),), ("212",)),
    # one argument
    own(
        "one_argument_zh",
        "成都明天天气怎么样？",
        "weather today",
        (("weather", {"city": "成都"}),),
        ("小雨|下雨|有雨", "17", "22"),
    ),
    own(
        "one_argument_en",
        "Will it snow in Oslo tomorrow?",
        "weather",
        (("weather", {"city": "Oslo"}),),
        ("snow",),
    ),
    own(
        "identifier_zh",
        "订单 SO-312 是什么状态？",
        "get_order get_customer",
        (("get_order", {"order_id": "SO-312"}),),
        ("待付款",),
        absent=("已发货",),
    ),
    # several typed arguments
    own("numbers_en", "What is 37 times 48?", "multiply", (("multiply", {}),), ("1776",)),
    own(
        "array_en",
        "What is the mean of 12, 18, 27 and 43?",
        "statistics multiply",
        (("statistics", {"numbers": [12, 18, 27, 43]}),),
        ("25",),
    ),
    own(
        "enum_zh",
        "250 欧元是多少人民币？",
        "convert",
        (("convert", {"amount": 250, "source": "euro", "target": "yuan"}),),
        ("1950",),
    ),
    own(
        "boolean_zh",
        "预订 B2 会议室 2 小时，要投影。",
        "book_room add_note",
        (("book_room", {"room": "B2", "hours": 2, "projector": True}),),
        ("B2", "预订|订好|订了|预定"),
        forbidden=("add_note",),
    ),
    own(
        "boolean_en",
        "Switch on the kitchen light at 40 percent.",
        "set_light",
        (("set_light", {"on": True, "percent": 40}),),
        ("kitchen", "40"),
    ),
    # a chain: the second argument is in the first result
    own(
        "chain_zh",
        "沈越有哪些工单？",
        "find_user list_tickets",
        (("find_user", {"name": "沈越"}), ("list_tickets", {"user_id": "U-52"})),
        ("T-1904|打印机",),
    ),
    own(
        "chain_en",
        "Which ticket of Nina Park is still open?",
        "find_user list_tickets",
        (("find_user", {"name": "Nina Park"}), ("list_tickets", {"user_id": "U-77"})),
        ("T-1921|new laptop",),
    ),
    own(
        "chain_order_zh",
        "下订单 SO-312 的客户叫什么，在哪个城市？",
        "get_order get_customer",
        (("get_order", {"order_id": "SO-312"}), ("get_customer", {"customer_id": "C-4"})),
        ("贺兰", "宁波"),
    ),
    # two calls compared or added up
    own(
        "compare_zh",
        "成都和大连明天哪里更暖和？",
        "weather",
        (("weather", {"city": "成都"}), ("weather", {"city": "大连"})),
        ("成都",),
        absent=("~(?<!比)大连[^。,;比]*(更|比较|比成都)(暖|热)",),
    ),
    own(
        "compare_en",
        "Which battery is fuller, north or south? Give both values.",
        "battery",
        (("battery", {"sensor": "north"}), ("battery", {"sensor": "south"})),
        ("71", "64", "~north[^.,;]*(fuller|higher|more|71)"),
        absent=("~(?<!than )(?<!the )south (battery )?(is|has) (the )?(fuller|higher|more)",),
    ),
    own(
        "sum_zh",
        "订单 SO-311 和 SO-312 一共多少元？",
        "get_order",
        (("get_order", {"order_id": "SO-311"}), ("get_order", {"order_id": "SO-312"})),
        ("539",),
    ),
    # an error whose text names the remedy
    own(
        "remedy_en",
        "How many M6 bolts are in stock?",
        "stock",
        (("stock", {"sku": "bolt-m6"}),),
        ("1450",),
    ),
    own(
        "remedy_zh",
        "预订 A1 会议室 1 小时，不要投影；A1 不行就换空着的那间。",
        "book_room",
        (("book_room", {"room": "B2", "hours": 1, "projector": False}),),
        ("B2",),
    ),
    # there is no such thing
    own(
        "absent_zh",
        "订单 SO-999 发货了吗？",
        "get_order",
        (),
        (f"{NONE}|查无此单|无此",),
        absent=("已发货", "待付款"),
    ),
    # an action that is confirmed, an answer with three facts
    own(
        "action_zh",
        "记一下：周三给打印机换墨盒。",
        "add_note today",
        (("add_note", {}),),
        ("记|保存|备忘",),
        forbidden=("today",),
    ),
    own(
        "three_facts_en",
        "For order SO-311: how many items, what total, and which customer id?",
        "get_order send_mail",
        (("get_order", {"order_id": "SO-311"}),),
        ("3", "450", "C-9"),
        forbidden=("send_mail",),
    ),
    # no tool is needed
    own(
        "no_tool_en",
        "Say thank you in German.",
        "weather add_note",
        (),
        ("danke|dankeschön",),
        forbidden=("weather", "add_note"),
    ),
    # beside the project files, and a follow-up question
    beside_files(
        "beside_files_zh",
        "notes/meeting-2026-09-02.md 里，谁负责续租仓库？记一条备忘提醒这个人。",
        "add_note",
        (("read_file", {"path": "notes/meeting-2026-09-02.md"}), ("add_note", {})),
        ("grace",),
    ),
    own(
        "follow_up_zh",
        "那大连呢？",
        "weather today",
        (("weather", {"city": "大连"}),),
        ("晴", "9", "15"),
        before=("成都明天天气怎么样？",),
    ),
    beside_files(
        "beside_files_en",
        "Does the north sensor's battery have enough charge? Give the value.",
        "battery",
        (("battery", {"sensor": "north"}),),
        ("71",),
        forbidden=("read_file",),
    ),
    own(
        "follow_up_en",
        "And the roof?",
        "battery",
        (("battery", {"sensor": "roof"}),),
        ("18",),
        before=("What is the charge of the south battery?",),
    ),
)
