"""The request body, kept from turn to turn: each input item is encoded once, into one growing buffer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import MiniPiError
from .reading import whole_characters

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class PayloadEncoder:
    """Writes payloads as JSON, `input` last; the items that the last one began with are not written again.

    An item that was changed, replaced or dropped since then, or whose keys stand in another order, is noticed
    by comparing with a copy, and the buffer cut back to the items before it. Not for several threads at once: one encoder each.
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
        if not _same(self._fields, fields):
            head = _json(fields)[:-2]
            self._body[: len(self._head)] = head
            self._head, self._fields = head, _copy(fields)

        pairs = zip(self._copies, items, strict=False)
        same = next((i for i, (old, new) in enumerate(pairs) if not _same(old, new)), len(items))
        same = min(same, len(self._copies))
        del self._copies[same:], self._ends[same:]
        del self._body[len(self._head) + (self._ends[-1] if same else 0) :]

        for item in items[same:]:
            self._body += b"," + _json(item) if self._copies else _json(item)
            self._copies.append(_copy(item))
            self._ends.append(len(self._body) - len(self._head))
        self._body += b"]}"
        return self._body


def _json(value: Any) -> bytes:
    return whole_characters(_ENCODER.encode(value)).encode()


def _same(old: Any, new: Any) -> bool:
    """Whether both are written as the same bytes. To Python 1, 1.0 and True are equal, and so are 0.0 and
    -0.0, and dicts whose keys stand in another order."""
    if isinstance(old, dict):
        return (
            isinstance(new, dict) and list(old) == list(new) and all(map(_same, old.values(), new.values()))
        )
    if isinstance(old, list):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and old == new and (type(old) is not float or str(old) == str(new))


def _copy(value: Any) -> Any:
    """A copy of the containers; the strings in them are shared, so that comparing them costs nothing."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value
