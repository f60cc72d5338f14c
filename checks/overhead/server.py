"""A scripted model server that costs next to nothing: `python3 -m checks.overhead.server` prints its port.

It speaks just enough of Responses and of Chat Completions, and decides by counting: the client names
the number of turns with POST /reset/N; that many requests later comes the answer, before it tool calls.
GET /stats tells the bytes and the connections since the reset.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading

USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
DETAILS = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class Script:
    """What has been asked since the last reset."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset(0)

    def reset(self, turns: int) -> None:
        self.turns, self.asked, self.bytes, self.connections = turns, 0, 0, 0


SCRIPT = Script()


def responses(turn: int, last: bool) -> dict[str, object]:
    if last:
        part = {"type": "output_text", "text": "done", "annotations": []}
        item: dict[str, object] = {"type": "message", "id": f"msg_{turn}", "role": "assistant"}
        item |= {"status": "completed", "content": [part]}
    else:
        item = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}", "name": "read"}
        item |= {"arguments": json.dumps({"path": f"file-{turn}.txt"}), "status": "completed"}
    body = {"id": f"resp_{turn}", "object": "response", "created_at": 1, "status": "completed"}
    body |= {"model": "scripted", "output": [item], "error": None, "incomplete_details": None}
    body |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": USAGE | DETAILS}
    return body


def chat(turn: int, last: bool) -> dict[str, object]:
    name, arguments = ("final_answer", {"answer": "done"}) if last else ("read", {"path": f"file-{turn}.txt"})
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = {"id": f"chat_{turn}", "object": "chat.completion", "created": 1, "model": "scripted"}
    return {**body, "choices": [choice], "usage": CHAT_USAGE}


class Handler(socketserver.StreamRequestHandler):
    """One connection, as many requests as the client sends on it."""

    def handle(self) -> None:
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with SCRIPT.lock:
            SCRIPT.connections += 1
        while request := self.rfile.readline():
            method, path, _ = request.decode("latin-1").split(" ", 2)
            length, close = 0, False
            while (line := self.rfile.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
                close = close or line == b"connection: close"
            left = length
            while left > 0:
                left -= len(self.rfile.read(min(left, 1 << 20)))
            body = json.dumps(self.answer(method, path, length)).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            head += "Connection: close\r\n" if close else ""
            self.wfile.write(head.encode() + b"\r\n" + body)
            if close:
                return

    def answer(self, method: str, path: str, length: int) -> dict[str, object]:
        with SCRIPT.lock:
            if path.startswith("/reset/"):
                SCRIPT.reset(int(path.rpartition("/")[2]))
                return {}
            if path == "/stats":
                return {"bytes": SCRIPT.bytes, "connections": SCRIPT.connections, "asked": SCRIPT.asked}
            SCRIPT.asked += 1
            SCRIPT.bytes += length
            make = chat if path.endswith("/chat/completions") else responses
            return make(SCRIPT.asked, SCRIPT.asked >= SCRIPT.turns)


class Server(socketserver.ThreadingTCPServer):
    """On a free port of 127.0.0.1."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
