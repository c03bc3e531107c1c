"""Listening sockets."""

import errno
import ipaddress
import socket

from dither_aggregator.web.bounds import BACKLOG, SENT_BYTES, SILENT_S
from dither_shared.errors import ConfigurationError


class Listener:
    """A listening socket. Raises ConfigurationError when the address cannot be had; port 0 is any free one."""

    def __init__(self, host: str, port: int, option: str = "--port") -> None:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a host's name"
            raise ConfigurationError(f"cannot listen on {host}: {reason}") from None
        try:
            self.socket = socket.create_server(address[:2], family=family, backlog=BACKLOG)
            # Its connections inherit both. An answer goes out in parts, which must not wait for one another.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            if hasattr(socket, "TCP_DEFER_ACCEPT"):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_S)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigurationError(f"cannot listen on {host}: this machine has no such address") from None
            raise ConfigurationError(
                f"cannot listen on {host} port {port}: {reason}; name another {option}, or 0 for any free one"
            ) from None
        bound, self.port = self.socket.getsockname()[:2]
        ip = ipaddress.ip_address(bound)
        self.reachable_from_elsewhere = not ip.is_loopback
        if ip.is_unspecified:  # this machine reaches it under its own name
            ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
        self.url = f"http://[{ip}]:{self.port}" if ip.version == 6 else f"http://{ip}:{self.port}"
