"""Which way to a server: straight, or through the proxy that the environment names. Found by urllib, but
for what it does not know: the many spellings of this machine, address ranges and bare IPv6 in no_proxy."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
import socket
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxy(NamedTuple):
    """host: with its port. login: the Proxy-Authorization header, None where the URL names no user."""

    host: str
    login: str | None


def proxy_for(url: SplitResult) -> Proxy | None:
    """The proxy for url; None for this machine, which no proxy is asked for, and where none is meant.

    Raises OSError for one that is no plain HTTP proxy: urllib would speak to an https:// one in plain text.
    """
    host = (url.hostname or "").rstrip(".")
    address = _address(host)
    named = None if _is_this_machine(host, address) else getproxies().get(url.scheme)
    if not named or proxy_bypass(url.netloc) or (address and _in_no_proxy(address)):
        return None
    with contextlib.suppress(ValueError):
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        if proxy.scheme == "http" and proxy.hostname and proxy.port != 0:
            pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
            login = None if proxy.username is None else f"Basic {base64.b64encode(pair).decode()}"
            return Proxy(proxy.netloc.rpartition("@")[2], login)
    raise OSError(0, "代理只能是 http://主机:端口")


def _is_this_machine(host: str, address: Address | None) -> bool:
    if address is None:
        return bool(re.fullmatch(r"(.+\.)?localhost(\.localdomain)?|ip6-(localhost|loopback)", host))
    return address.is_loopback or address.is_unspecified  # 0.0.0.0 and [::] lead here too


def _address(host: str) -> Address | None:
    """The address that host spells, in any way that the resolver takes (0x7f.1); None for a name."""
    with contextlib.suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    with contextlib.suppress(ValueError):
        address = ipaddress.IPv6Address(host)
        return address.ipv4_mapped or address
    return None


def _in_no_proxy(address: Address) -> bool:
    for entry in re.split(r"[,\s]+", getproxies().get("no", "")):
        with contextlib.suppress(ValueError):
            if address in ipaddress.ip_network(entry.strip("[]"), strict=False):
                return True
    return False
