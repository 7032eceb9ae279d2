"""How the text of an option becomes its value; each function raises ValueError.

The message goes on where "--option 'text': " ends. What options there are: config.py.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gateway.upstreams.origin import Origin
from router.policies import POLICIES
from router.worker import APIS

DEFAULT_WORKER_PORT = 8000
TRACES_PATH = "/v1/traces"
"""OTLP's path for spans."""
MOST_PROCESSES = 256
LEAST_INTERVAL_S = 0.01
"""What is done more often leaves no time for requests."""
_DEFAULT_PORT = re.compile(r"(http://.*(?=:80$)|https://.*(?=:443$)):[0-9]+")
"""What browsers leave out of an origin."""


def size(text: str) -> int:
    """Bytes of `N`, `N KiB`, `N MiB` or `N GiB` (also `K`, `KB`, ...); ValueError."""
    match = re.fullmatch(
        r"\s*([0-9]{1,18})\s*(?:([KMGT])i?B?|B)?\s*", text, re.IGNORECASE
    )
    if not match:
        raise ValueError("is no size such as 134217728, 128MiB or 4G")
    unit = (match[2] or "").upper()
    power = " KMGT".index(unit) if unit else 0
    value = int(match[1]) << (10 * power)
    if not value:
        raise ValueError("is no size above zero")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is no number") from None


def positive(text: str) -> float:
    """A number above zero; ValueError."""
    value = _number(text)
    if not 0 < value < float("inf"):
        raise ValueError("is no number above zero")
    return value


def policy_name(text: str) -> str:
    """The name of a policy; ValueError."""
    if text not in POLICIES:
        raise ValueError(f"is none of {', '.join(POLICIES)}")
    return text


def seconds(text: str) -> float:
    """A number of zero or above; ValueError."""
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise ValueError("is no number of zero or above")
    return value


def interval(text: str) -> float:
    """Seconds between two of what is done again and again, 0: never; ValueError."""
    value = seconds(text)
    if 0 < value < LEAST_INTERVAL_S:
        raise ValueError(f"is neither 0 nor {LEAST_INTERVAL_S} or above")
    return value


def whole(text: str) -> int:
    """A whole number above zero; ValueError."""
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise ValueError("is no whole number above zero")
    return int(text)


def count(text: str) -> int:
    """A whole number of zero or above; ValueError."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError("is no whole number of zero or above")
    return int(text)


def process_count(text: str) -> int:
    """How many processes may share a port; ValueError."""
    if not 1 <= (number := whole(text)) <= MOST_PROCESSES:
        raise ValueError(f"is more than {MOST_PROCESSES}")
    return number


def port_number(text: str) -> int:
    """A TCP port, 0 for any free one; ValueError."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise ValueError("is no port between 0 and 65535")
    return int(text)


def fraction(text: str) -> float:
    """A number from 0 to 1; ValueError."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise ValueError("is no number from 0 to 1")
    return value


def json_object(text: str) -> dict[str, Any]:
    """A JSON object; ValueError."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("is no JSON object") from None


def worker_url(text: str) -> str:
    """`scheme://host:port[/path]`; bare hosts get http:// and :8000; ValueError."""
    text = text.strip()
    if any(character.isspace() for character in text):
        raise ValueError("has white space in it")
    if "://" not in text:
        host, slash, path = text.partition("/")
        if not re.search(r":[^\]]*$", host):
            host = f"{host}:{DEFAULT_WORKER_PORT}"
        elif host.count(":") > 1 and "[" not in host:
            raise ValueError("is an IPv6 address without its brackets: [::1]:8000")
        text = f"http://{host}{slash}{path}"
    if urlsplit(text).path.rstrip("/").endswith("/v1"):
        raise ValueError("is a worker's address: leave out /v1")
    return str(Origin.parse(text))


def traces_endpoint(text: str) -> str:
    """Where spans go: `http(s)://host[:port]`, and OTLP's path; ValueError."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("is no URL such as http://collector:4318")
    path = parts.path.rstrip("/")
    if not path.endswith(TRACES_PATH):
        path += TRACES_PATH
    return parts._replace(path=path).geturl()


def worker_urls(text: str) -> tuple[str, ...]:
    """Comma-separated worker URLs; ValueError."""
    urls = tuple(worker_url(piece) for piece in text.split(",") if piece.strip())
    if not urls:
        raise ValueError("names no worker")
    return urls


def origins(text: str) -> tuple[str, ...]:
    """Comma-separated origins as browsers write them, or ``*``; ValueError."""
    found = tuple(piece.strip().lower() for piece in text.split(",") if piece.strip())
    if not found or not all(_is_origin(one) for one in found):
        raise ValueError("is not *, or SCHEME://HOST[:PORT] without path or slash")
    return tuple(_DEFAULT_PORT.sub(r"\1", one) for one in found)


def _is_origin(text: str) -> bool:
    host = r"(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])"
    origin = re.fullmatch(rf"[a-z][a-z0-9+.-]*://{host}(?::([0-9]{{1,5}}))?", text)
    if origin is None:
        return text == "*"
    return origin[1] is None or 0 < int(origin[1]) < 65536


class EventEndpoint(msgspec.Struct, frozen=True):
    """Where one rank of a worker publishes its KV events."""

    url: str
    rank: int
    endpoint: str


def event_endpoint(text: str) -> EventEndpoint:
    """`URL[#RANK]=tcp://host:port`; ValueError."""
    worker, separator, endpoint = text.partition("=")
    if not separator or not _can_connect(endpoint):
        raise ValueError("is not of the form URL[#RANK]=tcp://HOST:PORT")
    url, _, rank = worker.partition("#")
    if not re.fullmatch(r"[0-9]{0,6}", rank):
        raise ValueError(f"rank {rank!r} is no number")
    return EventEndpoint(worker_url(url), int(rank or 0), endpoint)


class EventTopic(msgspec.Struct, frozen=True):
    """Under which topic a worker's KV events come to the gateway's own socket."""

    url: str
    topic: str


def event_topic(text: str) -> EventTopic:
    """`URL=TOPIC`; the topic may be empty, as engines ship. ValueError."""
    worker, separator, topic = text.partition("=")
    if not separator:
        raise ValueError("is not of the form URL=TOPIC")
    return EventTopic(worker_url(worker), topic.strip())


class WorkerApi(msgspec.Struct, frozen=True):
    """What a worker takes; `url` None: every worker that is not named."""

    url: str | None
    api: str


def declared_api(text: str) -> WorkerApi:
    """`[URL=]chat|tokens`; ValueError."""
    url, separator, api = text.rpartition("=")
    if api not in APIS:
        raise ValueError("is not of the form [URL=]chat|tokens")
    return WorkerApi(worker_url(url) if separator else None, api)


def bind_endpoint(text: str) -> str:
    """`tcp://HOST:PORT` that ZMQ can bind, also with * or port 0; ValueError."""
    tcp = re.fullmatch(
        r"tcp://(?:\*|[\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", text.strip()
    )
    if tcp is None or int(tcp[1]) > 65535:
        raise ValueError("is not of the form tcp://HOST:PORT")
    return text.strip()


def _can_connect(endpoint: str) -> bool:
    """Whether ZMQ can connect to it. A wildcard is only good for binding."""
    tcp = re.fullmatch(r"tcp://(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", endpoint)
    if tcp is None:
        return re.fullmatch(r"ipc://\S{1,100}", endpoint) is not None
    return 0 < int(tcp[1]) < 65536


def model_source(text: str) -> tuple[str | None, str]:
    """`[NAME=]DIR_OR_ID` as (name or None, directory or hub id); ValueError."""
    name, separator, source = text.partition("=")
    if not separator or _is_directory(text):
        name, source = "", text
    if not source.strip():
        raise ValueError("names no model")
    return (name.strip() or None), source.strip()


def _is_directory(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except OSError:  # such as a name that is too long
        return False


def path_prefix(text: str) -> str:
    """A path that begins with a slash; ValueError."""
    if not text.startswith("/") or text.startswith("/gateway"):
        raise ValueError("is no path prefix such as /v2/embed")
    return text


def secret(text: str) -> str:
    """A key that can be a header's value; ValueError.

    An empty one would open the door to everybody.
    """
    if not re.fullmatch(r"[\x21-\x7e]+", text.strip()):
        raise ValueError("is no key of visible ASCII characters")
    return text.strip()


def template(text: str) -> str:
    """A chat template's text, a file that has it, or a name in the model; ValueError.

    What can only be a file has to be there.
    """
    is_text = any(mark in text for mark in "{}\n")
    is_path = "/" in text or text.endswith((".jinja", ".jinja2", ".j2"))
    if is_path and not is_text and not Path(text).is_file():
        raise ValueError("is no file here")
    return text
