"""Which way a request takes: straight to this machine however it is spelled, else through the environment's proxy."""

from __future__ import annotations

import socket
import unittest
from collections.abc import Callable
from unittest import mock
from urllib.parse import urlsplit

from checks.pi_ai.transport import ASK, BODY, KEY, environment, failure, through_a_tunnel
from checks.support import harness
from checks.support.harness import table
from checks.support.server import ScriptedServer
from packages.pi_ai import ResponsesClient
from packages.pi_ai.proxies import proxy_for

PROXY = "http://127.0.0.1:3128"


@table(
    [
        *((f"this_machine_{number}", host, "", False) for number, host in enumerate((
            "localhost", "LOCALHOST", "localhost.", "a.localhost", "localhost.localdomain", "127.0.0.1", "127.0.0.1.",
            "127.1", "127.255.0.9", "0x7f.1", "0177.0.0.1", "2130706433", "0.0.0.0", "0", "[::]", "[::1]",
            "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "ip6-localhost",
        ))),
        *((f"not_this_machine_{number}", host, "", True) for number, host in enumerate((
            "model.example", "localhost.example", "notlocalhost", "128.0.0.1", "[::2]", "[::ffff:10.0.0.1]", "10.0.0.1",
        ))),
        ("a_range", "192.168.7.8", "192.168.0.0/16", False),
        ("a_range_among_others", "192.168.7.8", "a.example, 192.168.0.0/16,b.example", False),
        ("outside_a_range", "192.169.7.8", "192.168.0.0/16", True),
        ("a_range_of_ipv6", "[fd00::5]", "fd00::/8", False),
        ("outside_a_range_of_ipv6", "[fe00::5]", "fd00::/8", True),
        ("ipv6_without_brackets", "[2001:db8::5]", "2001:db8::5", False),
        ("ipv6_in_brackets", "[2001:db8::5]", "[2001:db8::5]", False),
        ("another_ipv6", "[2001:db8::6]", "2001:db8::5", True),
        ("a_name", "model.example", "model.example", False),
        ("a_domain", "model.example", ".example", False),
        ("everything", "model.example", "*", False),
        ("nonsense_beside_a_range", "10.1.2.3", "///,10.0.0.0/8", False),
    ]
)  # fmt: skip
class Ways(unittest.TestCase):
    def row(self, host: str, no_proxy: str, proxied: bool) -> None:
        with environment(http_proxy=PROXY, no_proxy=no_proxy):
            proxy = proxy_for(urlsplit(f"http://{host}:8021/v1/responses"))
        self.assertEqual(proxy.host if proxy else None, "127.0.0.1:3128" if proxied else None)


class ProxiesThatAreRefused(unittest.TestCase):
    def test_an_https_proxy_is_not_spoken_to_in_plain_text(self) -> None:
        with ScriptedServer() as proxy:
            for url in ("http://model.invalid", "https://model.invalid"):
                with environment(
                    **dict.fromkeys(("http_proxy", "https_proxy"), f"https://127.0.0.1:{proxy.port}")
                ):
                    error = failure(self, lambda url=url: ResponsesClient(url, KEY, 5).create(ASK))
                self.assertIn("代理只能是 http://", str(error))
        self.assertEqual((proxy.requests, proxy.connections), ([], 0))


class Tunnels(unittest.TestCase):
    def test_what_follows_its_answer_is_never_taken_for_the_server_s(self) -> None:
        forged = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
        seen, error = through_a_tunnel(self, b"HTTP/1.1 200 Connection established\r\n\r\n" + forged)
        self.assertIn("CONNECT 的回答后面多发了内容", error)
        self.assertNotIn(KEY.encode(), seen)

    def test_it_is_asked_with_a_host_header(self) -> None:
        seen, _ = through_a_tunnel(self, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        self.assertIn(b"\r\nHost: model.invalid:443\r\n", seen)


class Addresses(unittest.TestCase):
    def test_one_deadline_holds_for_all_addresses_of_a_name(self) -> None:
        waited: list[float] = []
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9))] * 4

        def silent(address: object, timeout: float, *_: object, **__: object) -> socket.socket:
            waited.append(timeout)
            raise TimeoutError

        connect: Callable[..., object] = silent
        with (
            environment(),
            mock.patch("socket.getaddrinfo", return_value=addresses),
            mock.patch("socket.create_connection", connect),
        ):
            failure(self, lambda: ResponsesClient("http://four.example", timeout=1).create(ASK))
        self.assertEqual(len(waited), 4)
        self.assertLess(waited[0], 0.3)  # a share of the whole for each


if __name__ == "__main__":
    raise SystemExit(harness.main())
