"""The fingerprints of the models loaded here, computed in the background.

Each takes a child process some seconds, once: `render/fingerprints.py` keeps it. Until
it is there, and where it cannot be computed, there is none.
"""

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.settings.shared_config import SharedConfig
from render import Renderer
from render.fingerprint import Fingerprint
from render.fingerprint_child import Deadline, NoFingerprint
from render.fingerprints import TIMEOUT_S, compute

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often it is looked whether another model has been loaded."""

_Key = tuple[Path, Path]
"""A model's directory, and its tokenizer: the same under several names."""


class Fingerprints:
    """What is known of the loaded models' fingerprints."""

    def __init__(
        self,
        config: SharedConfig,
        *,
        loaded: Callable[[], Iterable[Renderer]],
        find: Callable[[str], Renderer | None],
        on_known: Callable[[], None] | None = None,
    ) -> None:
        """`loaded` are the renderers there are now, `find` is one by a model's name.

        `on_known` is called on the event loop each time another becomes known.
        """
        self._compute = functools.partial(
            compute,
            tool_parser=config.tool_call_parser,
            reasoning_parser=config.reasoning_parser,
        )
        self._loaded = loaded
        self._find = find
        self.on_known = on_known
        self._known: dict[_Key, Fingerprint] = {}
        self._problems: dict[_Key, str] = {}
        self._stopped = threading.Event()

    def current(self, model: str) -> Fingerprint | None:
        """The fingerprint of a model by its name; None: not known, or not yet."""
        renderer = self._find(model)
        return self.of(renderer) if renderer is not None else None

    def of(self, renderer: Renderer) -> Fingerprint | None:
        """The fingerprint of what a renderer renders with, if it is known."""
        return self._known.get(_key(renderer))

    def problem(self, model: str) -> str | None:
        """Why there will be no fingerprint of a model, if that is so."""
        renderer = self._find(model)
        return self._problems.get(_key(renderer)) if renderer is not None else None

    async def run(self) -> None:
        """Compute each model's that is loaded, one at a time, until cancelled."""
        while True:
            for renderer in list(self._loaded()):
                key = _key(renderer)
                if key not in self._known and key not in self._problems:
                    await self._learn(renderer)
            await asyncio.sleep(LOOK_S)

    def close(self) -> None:
        """Have a computation that still runs end at once."""
        self._stopped.set()

    async def _learn(self, renderer: Renderer) -> None:
        deadline = Deadline(TIMEOUT_S, self._stopped)
        name = renderer.model.name
        try:
            found = await asyncio.to_thread(self._compute, renderer, deadline=deadline)
        except NoFingerprint as error:
            self._problems[_key(renderer)] = str(error)
            log.warning("model %s has no fingerprint: %s", name, error)
            return
        except Exception:  # a fault of ours: it would come again
            self._problems[_key(renderer)] = "a fault of the gateway"
            log.exception("the fingerprint of model %s failed", name)
            return
        self._known[_key(renderer)] = found
        log.info("model %s has the fingerprint %s", name, found.digest)
        if found.unfit is not None:
            # Prompts with a date are nothing to set right.
            log.log(
                logging.INFO if found.unfit.reason == "clock" else logging.WARNING,
                "the fingerprint of model %s proves nothing: %s",
                name,
                found.unfit.detail,
            )
        if self.on_known is not None:
            self.on_known()


def _key(renderer: Renderer) -> _Key:
    return renderer.model.path, renderer.model.tokenizer_file
