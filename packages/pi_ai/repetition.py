"""A text that goes round in circles, as small models write it until something stops them."""

from __future__ import annotations

ASK_OTHERWISE = "请换一种问法，或换用更强的模型。"
_LONGEST, _TIMES, _CHARACTERS = 600, 4, 120


def repetition(text: str) -> str:
    """The piece that text repeats at its end, shortened and quoted; "" where it does not.

    At least 4 times, and 120 characters in all: a row of dashes in a table is neither.
    """
    text = text.rstrip()
    for length in range(1, min(_LONGEST, len(text) // _TIMES) + 1):
        times = max(_TIMES, -(-_CHARACTERS // length))
        if len(text) >= length * times and text.endswith(text[-length:] * times):
            piece = " ".join(text[-length:].split())
            return f"“{piece[:60]}{'…' if len(piece) > 60 else ''}”" if piece.strip("-=_|.*# ") else ""
    return ""
