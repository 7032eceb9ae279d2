"""Pages of other sites ask nothing of /gateway, though a browser carries them there.

A browser on an operator's machine is a loopback peer, and sends a key it was told once
with every request. What it says of where a request comes from is believed: a page
cannot change it. What is no browser says nothing and passes.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.access.errors import Forbidden

SAFE_METHODS = frozenset({"GET", "HEAD"})
PRIVATE_NAMES = ("localhost", "local", "internal")
"""Last labels of names that nobody can have others resolve."""


def check_same_site(method: str, headers: Mapping[str, str]) -> None:
    """Raise Forbidden for what another site's page would have a browser ask.

    Links from elsewhere may be followed: their page cannot read what they lead to.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        follows = headers.get("Sec-Fetch-Mode") == "navigate" and method in SAFE_METHODS
        if site in ("same-origin", "none") or follows:
            return
        raise Forbidden("/gateway does not answer pages of other sites")
    origin = headers.get("Origin")
    if origin is not None and _place(origin) != headers.get("Host", "").lower():
        raise Forbidden("/gateway does not answer pages of other sites")


def is_private_name(host: str | None) -> bool:
    """Whether a `Host` is an address, or a name that no public DNS can answer for.

    Another site's name may be made to lead to a loopback address, and its page with it.
    """
    try:
        name = (urlsplit(f"//{host or ''}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if "." not in name or name.rpartition(".")[2] in PRIVATE_NAMES:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
