"""Accepted values of the header Host: the names of this machine, and those that the user allows.

Any web page can make a browser send requests to 127.0.0.1 under a name that it controls (DNS rebinding), and
read the replies. The header Host carries that name, so only known ones are answered. Clients other than
browsers may omit it.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable

from bertsmith.base.core.errors import ConfigError

ANY = "*"
_LOCAL = "localhost"
_HEADER = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::\d*)?")
_NAME = re.compile(r"[\w.-]+", re.ASCII)


class AllowedHosts:
    """The names under which a server answers.

    Args:
        names: allowed names and addresses, without a port; `*` allows every name.
        any_address: whether numeric addresses are allowed. A page can only have a numeric address as its
            origin if it was served from it.
    """

    def __init__(self, names: Iterable[str] = (), *, any_address: bool = False) -> None:
        self._names = frozenset(map(_plain, names))
        self._any_address = any_address

    def allows(self, header: str) -> bool:
        """Whether a request with this header Host is answered."""
        match = _HEADER.fullmatch(header.strip())
        if ANY in self._names or match is None:
            return ANY in self._names
        name = _plain(match[2] if match[1] is None else match[1])
        address = _address(name)
        if address is None:
            return name == _LOCAL or name in self._names
        return address.is_loopback or self._any_address or name in self._names


def hosts_of(bound: str, more: Iterable[str] = ()) -> AllowedHosts:
    """The names of a server that listens on an address.

    Loopback names are always allowed. A server that other machines can reach also answers to the name of this machine
    and to numeric addresses.

    Args:
        bound: the address or name that the server listens on.
        more: names that the user allows.
    """
    more = list(more)
    for name in more:
        if name != ANY and not _NAME.fullmatch(_plain(name)) and _address(_plain(name)) is None:
            raise ConfigError(
                expected="a host name or an address without a port, or *, for --allow-host",
                found=repr(name),
                fix="give the name that clients have in their URL, such as models.example.org",
            )
    if is_loopback(bound):
        return AllowedHosts([bound, *more])
    return AllowedHosts([bound, socket.gethostname(), *more], any_address=True)


def is_loopback(host: str) -> bool:
    """Whether a name or address can only be reached from this machine."""
    address = _address(_plain(host))
    return host == _LOCAL if address is None else address.is_loopback


def _plain(name: str) -> str:
    """A name in lower case, without the dot that may end it."""
    return name.strip("[]").lower().removesuffix(".")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
