"""The request body, kept from turn to turn: each input item is encoded once, into one growing buffer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import MiniPiError

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class PayloadEncoder:
    """Writes payloads as JSON, `input` last; the items that the last one began with are not written again.

    An item that was changed, replaced or dropped since then is noticed, by comparing with a copy, and
    the buffer cut back to the items before it. Not for several threads at once: one encoder each.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._head, self._body = b"", bytearray()
        self._copies: list[Any] = []
        self._ends: list[int] = []  # where each item ends, counted from the end of the head

    def encode(self, payload: Mapping[str, Any]) -> bytearray:
        """The body to send, without the fields that are None; valid until the next call.

        Raises MiniPiError for what JSON cannot hold.
        """
        try:
            return self._encode({name: value for name, value in payload.items() if value is not None})
        except BaseException as error:
            self.__init__()  # type: ignore[misc]  # buffer and copies may disagree by now
            if isinstance(error, TypeError | ValueError | RecursionError):
                raise MiniPiError(f"请求无法写成 JSON：{error}。请检查 request_options 和历史。") from None
            raise

    def _encode(self, fields: dict[str, Any]) -> bytearray:
        items = fields.pop("input", None)
        if not isinstance(items, list):
            return bytearray(_json(fields if items is None else {**fields, "input": items}))
        fields["input"] = []
        if fields != self._fields:
            head = _json(fields)[:-2]
            self._body[: len(self._head)] = head
            self._head, self._fields = head, _copy(fields)

        same = len(self._copies)
        if self._copies != items[:same]:
            pairs = zip(self._copies, items, strict=False)
            same = next((i for i, (old, new) in enumerate(pairs) if old != new), len(items))
        del self._copies[same:], self._ends[same:]
        del self._body[len(self._head) + (self._ends[-1] if same else 0) :]

        for item in items[same:]:
            self._body += b"," + _json(item) if self._copies else _json(item)
            self._copies.append(_copy(item))
            self._ends.append(len(self._body) - len(self._head))
        self._body += b"]}"
        return self._body


def _json(value: Any) -> bytes:
    # A lone surrogate has no UTF-8; "backslashreplace" makes it \udXXX, its escape in a JSON string.
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def _copy(value: Any) -> Any:
    """A copy of the containers; the strings in them are shared, so that comparing them costs nothing."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value
