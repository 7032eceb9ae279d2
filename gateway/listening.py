"""The port of the front door: taken before workers are asked, opened when ready.

A port that is in use is told at once, and without a word about workers before it.
"""

import errno
import socket

from gateway.errors import ConfigError


def take_port(host: str, port: int) -> list[socket.socket]:
    """A bound socket, not listening yet, per address of `host`; ConfigError.

    For port 0 one port is chosen for all of them.
    """
    taken: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, address in dict.fromkeys(found):
            number = taken[0].getsockname()[1] if taken else port
            taken.append(_bound(family, (address[0], number, *address[2:])))
    except (OSError, UnicodeError) as error:
        for sock in taken:
            sock.close()
        raise _refusal(f"{host}:{port}", error) from None
    return taken


def listen(sock: socket.socket) -> None:
    """Open a port that was taken; ConfigError where another opened it meanwhile.

    uvloop would listen too, but close the socket where it cannot, and say nothing.
    """
    try:
        sock.listen()
    except OSError as error:
        host, port = sock.getsockname()[:2]
        sock.close()
        raise _refusal(f"{host}:{port}", error) from None


def _refusal(where: str, error: OSError | UnicodeError) -> ConfigError:
    if isinstance(error, UnicodeError):
        return ConfigError(f"--host: {where[:100]} is no host name")
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"--port: {where} is in use")
    return ConfigError(f"cannot listen on {where}: {error.strerror}")


def url_of(sock: socket.socket) -> str:
    """The URL that a socket is reached by."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:  # 0.0.0.0 may be somebody else's
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
