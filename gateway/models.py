"""Which renderer renders a request for a model.

`--model` names them; without it the workers are asked, and what they name is looked
up in the local cache. Loading holds the GIL for a good part of a second, so it happens
only until the gateway is first ready.
"""

import logging
from collections.abc import Iterable, Mapping

from gateway.errors import ConfigError
from gateway.loading import load_renderer
from gateway.settings.config import Config
from gateway.settings.shared_config import DEFAULT_PROFILE
from render import ModelNotFound, Renderer
from render.profile import PROFILES
from router.models import ListedModel

log = logging.getLogger(__name__)

MOST_TRIED = 1024
"""Listed models that are looked up, or told of, at most: workers may list any."""
ByProfile = Mapping[str, Renderer]
"""One model's renderers, by the engine whose rules they follow."""


class Renderers:
    """The loaded renderers, by the model name that requests or workers use."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._by_name: dict[str, ByProfile] = {}
        self._for_any: ByProfile | None = None
        self._tried: set[tuple[str, str | None]] = set()
        """Id and root: what one worker does not say of a model, another may."""
        self._missing: dict[str, list[str]] | None = {}
        """Why models are not loaded, until all workers may have said their part."""

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
            if model.id in self._by_name or not self._is_new(model):
                continue
            self._tried.add((model.id, model.root))
            renderer = self._first_found(model)
            if renderer is not None:
                self._by_name[model.id] = renderer

    def refuse(self, models: Iterable[ListedModel]) -> None:
        """Say that models listed only now, with the gateway in use, are not loaded."""
        for model in models:
            if model.id not in self._by_name and self._is_new(model):
                self._tried.add((model.id, model.root))
                log.warning(
                    "model %s appeared while the gateway serves: its requests are "
                    "routed by load and raw content until a restart; "
                    "--model %s=DIR_OR_ID loads it at start",
                    model.id,
                    model.id,
                )

    def _first_found(self, model: ListedModel) -> ByProfile | None:
        sources = [source for source in (model.root, model.id) if source]
        reasons = []
        for source in dict.fromkeys(sources):
            try:
                return self._load(source)
            except ModelNotFound as error:
                reasons.append(str(error))
        if self._missing is None:
            _say_missing(model.id, reasons)
        else:
            self._missing.setdefault(model.id, []).extend(reasons)
        return None

    def say_missing(self) -> None:
        """All workers were asked: say now what could not be found, later at once."""
        missing, self._missing = self._missing or {}, None
        for name, reasons in missing.items():
            if name not in self._by_name:
                _say_missing(name, reasons)

    def knows(self, models: Iterable[ListedModel]) -> bool:
        """Whether nothing of that listing is still to be looked up."""
        return not (self.asked and any(map(self._is_new, models)))

    def _is_new(self, model: ListedModel) -> bool:
        if model.parent is not None or len(self._tried) >= MOST_TRIED:
            return False
        return (model.id, model.root) not in self._tried

    @property
    def loaded(self) -> list[Renderer]:
        """A renderer of each model, under one profile; a model with two names, twice.

        For the others see `find`.
        """
        loaded = [*self._by_name.values(), *([self._for_any] if self._for_any else [])]
        return [by_profile[DEFAULT_PROFILE] for by_profile in loaded]

    @property
    def names(self) -> list[str]:
        """The model names that renderers were loaded for by name."""
        return list(self._by_name)

    def find(
        self, model: str | None, base: str, profile: str = DEFAULT_PROFILE
    ) -> Renderer | None:
        """The renderer for a request's model, else for its base model.

        It renders as the engine of that profile does.
        """
        found = self._by_name.get(model) if model is not None else None
        found = found or self._by_name.get(base) or self._for_any
        return found.get(profile) if found is not None else None

    def _load(self, source: str) -> ByProfile:
        """What is loaded is shared; it is looked at once for each profile."""
        renderer = load_renderer(self._config, source, DEFAULT_PROFILE)
        return {profile: renderer.with_profile(profile) for profile in PROFILES}


def _say_missing(model: str, reasons: Iterable[str]) -> None:
    log.warning(
        "model %s is not rendered: its requests are routed by load and raw content; "
        "--model %s=DIR_OR_ID renders them (%s)",
        model,
        model,
        "; ".join(dict.fromkeys(reasons)),
    )
