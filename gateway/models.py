"""Which renderer renders a request for a model.

`--model` names them; without it the workers are asked, and what they name is looked
up in the local cache. Loading holds the GIL for a good part of a second, so it happens
only until the gateway is first ready.
"""

import logging
import time
from collections.abc import Iterable

from gateway.config import Config
from gateway.errors import ConfigError
from render import ModelNotFound, Renderer
from router.models import ListedModel

log = logging.getLogger(__name__)


class Renderers:
    """The loaded renderers, by the model name that requests or workers use."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._by_name: dict[str, Renderer] = {}
        self._for_any: Renderer | None = None
        self._tried: set[str] = set()

    @property
    def asked(self) -> bool:
        """Whether models are to be asked of the workers."""
        return self._config.render != "never" and not self._config.model

    def load_configured(self) -> None:
        """Load what `--model` names; ConfigError where it cannot be found or read."""
        if self._config.render == "never":
            return
        unnamed = [source for name, source in self._config.model if name is None]
        if len(unnamed) > 1:
            raise ConfigError("--model: several models need names: NAME=DIR_OR_ID")
        for name, source in self._config.model:
            try:
                renderer = self._load(source)
            except ModelNotFound as error:
                raise ConfigError(f"--model {source}: {error}") from None
            if name is None:
                self._for_any = renderer
            else:
                self._by_name[name] = renderer

    def learn(self, models: Iterable[ListedModel]) -> None:
        """Load what a worker lists, where it can be found here; say what cannot."""
        if not self.asked:
            return
        for model in models:
            if model.parent is not None or model.id in self._tried:
                continue
            self._tried.add(model.id)
            renderer = self._first_found(model)
            if renderer is not None:
                self._by_name[model.id] = renderer

    def refuse(self, models: Iterable[ListedModel]) -> None:
        """Say that models listed only now, with the gateway in use, are not loaded."""
        for model in models:
            if model.parent is None and model.id not in self._tried:
                self._tried.add(model.id)
                log.warning(
                    "model %s appeared while the gateway serves: its requests are "
                    "routed by load and raw content until a restart; "
                    "--model %s=DIR_OR_ID loads it at start",
                    model.id,
                    model.id,
                )

    def _first_found(self, model: ListedModel) -> Renderer | None:
        sources = [source for source in (model.root, model.id) if source]
        reasons = []
        for source in dict.fromkeys(sources):
            try:
                return self._load(source)
            except ModelNotFound as error:
                reasons.append(str(error))
        log.warning(
            "model %s is not rendered: its requests are routed by load and raw "
            "content; --model %s=DIR_OR_ID renders them (%s)",
            model.id,
            model.id,
            "; ".join(reasons),
        )
        return None

    def knows(self, models: Iterable[ListedModel]) -> bool:
        """Whether nothing of that listing is still to be looked up."""
        return not self.asked or all(
            model.parent is not None or model.id in self._tried for model in models
        )

    def find(self, model: str | None, base: str) -> Renderer | None:
        """The renderer for a request's model, else for its base model."""
        found = self._by_name.get(model) if model is not None else None
        return found or self._by_name.get(base) or self._for_any

    def _load(self, source: str) -> Renderer:
        begun = time.monotonic()
        config = self._config
        try:
            renderer = Renderer.load(
                source,
                encoder=config.encoder,
                chat_template=config.chat_template,
                default_chat_template_kwargs=config.default_chat_template_kwargs,
                chat_template_content_format=config.chat_template_content_format,
            )
        except OSError as error:  # such as a name that is too long for a path
            raise ModelNotFound(f"cannot be looked for: {error.strerror}") from None
        took = time.monotonic() - begun
        log.info(
            "model %s loaded in %.1f s, encoder %s", source, took, renderer.encoder_name
        )
        return renderer
