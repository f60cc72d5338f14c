"""A key in what a server sends back is hidden however it is spelled; what cannot be a secret is left alone."""

from __future__ import annotations

import html
import json
import unittest
from urllib.parse import quote

from checks.support import harness
from checks.support.harness import table
from packages.pi_ai.errors import without_secret
from packages.pi_ai.reading import refusal

KEY = "sk/Abc+12&3=4.x."


@table(
    [
        ("as_it_is", KEY),
        ("in_json_with_escaped_slashes", json.dumps(KEY)[1:-1].replace("/", "\\/")),
        ("in_html", html.escape(KEY)),
        ("in_html_twice", html.escape(html.escape(KEY))),
        ("in_numeric_entities", "".join(f"&#{ord(c)};" for c in KEY)),
        ("in_hexadecimal_entities", "".join(f"&#x{ord(c):X};" for c in KEY)),
        ("in_a_url", quote(KEY, safe="")),
        ("in_a_url_twice", quote(quote(KEY, safe=""), safe="")),
        ("in_unicode_escapes", "".join(f"\\u{ord(c):04x}" for c in KEY)),
        ("without_its_last_dot", KEY[:-1]),
        ("in_capitals", KEY.upper()),
    ]
)
class Spellings(unittest.TestCase):
    def row(self, spelled: str) -> None:
        said = without_secret({"error": [f"key: {spelled}!", {spelled: 1}]}, KEY)
        self.assertNotIn("Abc", json.dumps(said))
        self.assertEqual(said["error"][0][:8], "key: ***")
        self.assertIn("***", said["error"][1])


@table(
    [(f"{key or 'nothing'}".replace("-", "_"), key) for key in
     ("x", "1", "none", "None", "EMPTY", "ollama", "token", "lm-studio", "not-needed", "sk-no-key-required", "a1b", "")]
)  # fmt: skip
class Placeholders(unittest.TestCase):
    def row(self, key: str) -> None:
        text = f"none of 1 x is EMPTY: token ollama {key}"
        self.assertEqual(without_secret(text, key), text)


class CutBodies(unittest.TestCase):
    def test_a_key_across_the_end_of_what_is_shown_leaves_not_a_letter(self) -> None:
        key = "sk-" + "Q7" * 30
        for before in range(430, 510):
            body = {"error": {"message": "=" * before + key}}
            self.assertNotIn("Q7", str(refusal("what", without_secret(body, key), "do")))


if __name__ == "__main__":
    raise SystemExit(harness.main())
