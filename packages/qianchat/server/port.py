"""What answers on a port, and what to call it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

_MAX_BODY = 1 << 20


@dataclass(frozen=True)
class Occupant:
    """description: what it is, in Chinese; healthy: a model server that is ready; loading: not yet."""

    description: str
    healthy: bool = False
    loading: bool = False


def occupant(host: str, port: int, timeout: float = 2.0) -> Occupant | None:
    """Ask whoever listens there for /health and /v1/models; None when nobody does. timeout: seconds for all
    of it, also where bytes drip. Never raises."""
    end = time.monotonic() + timeout
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return None
    try:
        status, server, health = request(host, port, "GET", "/health", timeout / 2)
        _, _, listing = request(host, port, "GET", "/v1/models", max(0.1, end - time.monotonic()))
    except (OSError, http.client.HTTPException):
        return Occupant("一个不说 HTTP 的程序")
    models = _model_names(listing)
    named = f"，带模型 {'、'.join(models[:3])}" if models else ""
    if server == "llama.cpp":
        if status == 503:
            return Occupant("llama-server，正在载入模型", loading=True)
        return Occupant(f"llama-server{named}", healthy=status == 200)
    if models or (status == 200 and isinstance(health, dict) and health.get("status") == "ok"):
        return Occupant(f"一个模型服务{named}", healthy=True)
    return Occupant("另一个 HTTP 服务")


def request(
    host: str, port: int, method: str, path: str, timeout: float = 2.0, body: str | None = None
) -> tuple[int, str, object]:
    """Status, Server header and JSON body (None when it is no JSON). timeout: seconds for the whole.
    Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    connection.connect()
    end = threading.Timer(timeout, _hang_up, [connection.sock])
    end.daemon = True
    end.start()
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        data = answer.read(_MAX_BODY)
    finally:
        end.cancel()
        connection.close()
    try:
        return answer.status, answer.getheader("Server", ""), json.loads(data)
    except (ValueError, RecursionError):
        return answer.status, answer.getheader("Server", ""), None


def _hang_up(connection: socket.socket) -> None:
    """Ends the reading in the other thread: a socket's own timeout begins anew with each byte."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _model_names(listing: object) -> list[str]:
    data = listing.get("data") if isinstance(listing, dict) else None
    entries = data if isinstance(data, list) else []
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
