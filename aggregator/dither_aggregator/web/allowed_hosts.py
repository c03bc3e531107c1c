"""The names under which somebody may read, or ask for health.

A page elsewhere can have its own name lead to a loopback address, and a browser beside the aggregator then lets it read
what comes back; but the browser says that name.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address

from dither_aggregator.web.http_messages import Scope
from dither_shared.wire.problems import Problem

ANY = "*"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")


def check_reader(scope: Scope, allowed: Collection[str]) -> None:
    """Refuse a request that says no name, or one that is not allowed.

    Addresses in numbers are allowed: nobody can have them lead here.
    """
    given = [value for name, value in scope["headers"] if name == b"host"]
    if len(given) != 1 or not scope["query_string"].isascii():
        raise Problem("malformed", "send one Host, and a query in ASCII")
    name = name_of(given[0])
    if not (ANY in allowed or name == "localhost" or name in allowed or _is_address(name)):
        raise Problem("host-not-allowed", "nothing is read under this name; --allow-host allows it")


def check_monitor(scope: Scope, allowed: Collection[str]) -> None:
    """Do the same for a monitor, which may say no name: some load balancers do not, and every browser does."""
    if any(name == b"host" for name, _ in scope["headers"]):
        check_reader(scope, allowed)


def name_of(host: bytes) -> str:
    """Return the name that a Host header says, without its port; "" where it says none."""
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    return found[1].strip("[]").rstrip(".") if found else ""


def is_local(name: str) -> bool:
    """Whether a name leads to the machine itself, wherever it is asked for."""
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
