"""The workers file names workers, in TOML or JSON; it is read again when it changes.

So is a file of a key that it names.

TOML has a table `[[workers]]` for each, JSON an array, or an object with an array
`workers`. An entry has the fields of `WorkerSpec`; only `url` is needed, and a string
is an entry with nothing but that. A file that cannot be read, has a mistake in it or is
emptied changes nothing: that is logged, and the workers stay as they are.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.errors import ConfigError
from gateway.files import State, content, state
from gateway.settings.values import event_endpoint, secret, worker_url
from gateway.workers.contact import ENGINES, GENERIC
from gateway.workers.fleet import Fleet
from gateway.workers.namings import FILE, Named
from render.profile import PROFILES
from router.worker import APIS, WorkerSpec

log = logging.getLogger(__name__)

LOOK_S = 1.0
MOST_BYTES = 4 * 1024 * 1024
FIELDS = WorkerSpec.__struct_fields__


def spec_of(entry: object) -> WorkerSpec:
    """The record of one entry; ValueError, one line that names the field."""
    if isinstance(entry, str):
        entry = {"url": entry}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("url"), str):
        raise ValueError("a worker has no url")
    unknown = sorted(set(map(str, entry)).difference(FIELDS))
    if unknown:
        raise ValueError(f"a worker has no field {unknown[0][:100]!r}")
    try:
        url = worker_url(entry["url"])
        named = {**entry, "url": url}
        spec = msgspec.convert(named, WorkerSpec, strict=False, str_keys=True)
    except ValueError as error:
        raise ValueError(f"worker {entry['url'][:100]!r}: {error}") from None
    _check(spec)
    return spec


def _check(spec: WorkerSpec) -> None:
    for field in ("kv_events", "replay"):
        for rank, endpoint in getattr(spec, field).items():
            try:
                event_endpoint(f"{spec.url}#{rank}={endpoint}")
            except ValueError:
                text = "is no tcp://HOST:PORT of a rank"
                raise ValueError(f"worker {spec.url}: {field} {text}") from None
    if spec.engine is not None and spec.engine not in (*ENGINES, GENERIC):
        raise ValueError(f"worker {spec.url}: engine is none of {', '.join(ENGINES)}")
    if spec.api is not None and spec.api not in APIS:
        raise ValueError(f"worker {spec.url}: api is none of {', '.join(APIS)}")
    if spec.profile is not None and spec.profile not in PROFILES:
        raise ValueError(f"worker {spec.url}: profile is none of {', '.join(PROFILES)}")


def key_of(spec: WorkerSpec) -> str | None:
    """What is in a worker's key file, if it has one; ValueError."""
    if spec.api_key_file is None:
        return None
    try:
        return secret(content(spec.api_key_file, MOST_BYTES).decode("ascii"))
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else "is no file of a key"
        raise ValueError(f"worker {spec.url}: api_key_file: {text}") from None


def filed_workers(path: Path | None) -> list[WorkerSpec]:
    """Those of the workers file, if there is one; ConfigError."""
    return read_workers(path) if path is not None else []


def read_workers(path: Path, *, may_be_empty: bool = True) -> list[WorkerSpec]:
    """The workers of a file; ConfigError."""
    try:
        text = content(path, MOST_BYTES)
        if not (may_be_empty or text.strip()):
            raise ValueError("is empty, not even a list")
        return _specs(_decoded(text, toml=path.suffix != ".json"))
    except OSError as error:
        raise ConfigError(f"--workers-file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--workers-file {path}: {error}") from None


def _decoded(text: bytes, *, toml: bool) -> Any:
    """TOML, or JSON: a `.json`, or whatever begins like it."""
    begins = text.lstrip()
    if not toml or begins.startswith(b"{") or begins in (b"", b"[]"):
        return msgspec.json.decode(text) if begins else []
    try:
        told = msgspec.toml.decode(text)
    except msgspec.DecodeError:
        if not begins.startswith(b"["):
            raise
        told = None
    if begins.startswith(b"[") and "workers" not in (told or {}):
        return msgspec.json.decode(text)  # `["w1"]` is a table to TOML
    return told


def _specs(told: Any) -> list[WorkerSpec]:
    entries = told.get("workers") if isinstance(told, Mapping) and told else told
    if entries == {}:  # nothing but comments
        return []
    if not isinstance(entries, list):
        raise ValueError("has no list of workers")
    specs = [spec_of(entry) for entry in entries]
    seen: set[str] = set()
    for spec in specs:
        if spec.url in seen:
            raise ValueError(f"names {spec.url} more than once")
        seen.add(spec.url)
        key_of(spec)  # it is read again when the worker is added
    return specs


def named_by(specs: Iterable[WorkerSpec]) -> dict[str, Named]:
    """Each worker with its key, by URL; ValueError where a key cannot be read."""
    return {spec.url: Named(spec=spec, api_key=key_of(spec)) for spec in specs}


class WorkersFile:
    """Keeps the fleet in line with a file; workers from elsewhere are left alone."""

    def __init__(self, path: Path, fleet: Fleet) -> None:
        """Those that it named at the start are in the fleet already."""
        self._path = path
        self._fleet = fleet
        self._watched = [path]
        """The file, and the files of keys that it names."""
        self._state: State = ()
        """Unlike any at the first look: what changed since the start counts, too."""
        self._problem = ""

    async def watch(self) -> None:
        """Look for changes, until cancelled; what could not be used is tried again.

        A change is taken once it has stood for a look: files may be written slowly.
        A pipe has said what it had to say.
        """
        if self._path.is_fifo():
            await asyncio.get_running_loop().create_future()
        seen: State = ()
        while True:
            await asyncio.sleep(LOOK_S)
            before, seen = seen, await asyncio.to_thread(state, self._watched)
            if seen == before and (seen != self._state or self._problem):
                self._state = seen
                await self._follow()

    async def _follow(self) -> None:
        try:
            named = await asyncio.to_thread(self._read)
        except (ConfigError, ValueError) as error:
            if str(error) != self._problem:
                log.error("the workers stay as they are: %s", error)
            self._problem = str(error)
            return
        self._problem = ""
        keys = filter(None, (one.spec.api_key_file for one in named.values()))
        watched = [self._path, *map(Path, sorted(set(keys)))]
        if watched != self._watched:
            self._watched, self._state = watched, ()
        await self._fleet.settle(FILE, named)

    def _read(self) -> dict[str, Named]:
        """What it names now; an empty file is one that is still to be written."""
        return named_by(read_workers(self._path, may_be_empty=False))
