"""The port of the front door: taken before workers are asked, opened when ready.

A port that is in use is told at once, and without a word about workers before it.
"""

import errno
import socket
from collections.abc import Iterable

from gateway.errors import ConfigError
from gateway.settings.config import Config


def take_ports(
    config: Config, *, shared: bool = False
) -> tuple[list[socket.socket], list[socket.socket]]:
    """Sockets for clients, and for operators where they have a port; ConfigError."""
    clients = take_port(config.host, config.port, shared=shared)
    if config.admin_port is None:
        return clients, []
    host, port = config.admin_host or config.host, config.admin_port
    try:
        return clients, take_port(host, port, flag="--admin-port")
    except ConfigError:
        close(clients)
        raise


def take_port(
    host: str, port: int, *, shared: bool = False, flag: str = "--port"
) -> list[socket.socket]:
    """A bound socket, not listening yet, per address of `host`; ConfigError.

    For port 0 one port is chosen for all of them. One that is `shared` may be taken
    by several processes of this user, among which the system spreads connections.
    `flag` is what an error calls the option.
    """
    taken: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, address in dict.fromkeys(found):
            number = taken[0].getsockname()[1] if taken else port
            place = (address[0], number, *address[2:])
            taken.append(_bound(family, place, shared=shared))
    except (OSError, UnicodeError) as error:
        close(taken)
        raise _refusal(f"{host}:{port}", error, flag) from None
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


def close(sockets: Iterable[socket.socket]) -> None:
    """Give their ports back."""
    for sock in sockets:
        sock.close()


def _refusal(
    where: str, error: OSError | UnicodeError, flag: str = "--port"
) -> ConfigError:
    if isinstance(error, UnicodeError):
        host = flag.replace("port", "host")
        return ConfigError(f"{host}: {where[:100]} is no host name")
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"{flag}: {where} is in use")
    return ConfigError(f"cannot listen on {where}: {error.strerror}")


def url_of(sock: socket.socket, *, tls: bool = False) -> str:
    """The URL that a socket is reached by; of one of this machine's own, its path."""
    if sock.family is socket.AF_UNIX:
        return str(sock.getsockname())
    host, port = sock.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(
    family: socket.AddressFamily, address: tuple[object, ...], *, shared: bool
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:  # 0.0.0.0 may be somebody else's
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
