"""Which renderer renders for which model, and what cannot be loaded."""

import logging
from pathlib import Path

import pytest

from gateway import models
from gateway.errors import ConfigError
from gateway.models import Renderers
from gateway.settings.config import Config
from render import Renderer
from router.models import ListedModel
from tests.running import MODEL


@pytest.fixture
def loaded(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was loaded; the shared renderer stands for each model that is there."""
    sources: list[str] = []
    load = Renderer.load

    def shared(source: str, **options: object) -> Renderer:
        if source.startswith("here/"):
            sources.append(source)
            return renderer
        return load(source)

    monkeypatch.setattr(Renderer, "load", shared)
    return sources


def renderers(*models: tuple[str | None, str], render: str = "auto") -> Renderers:
    """Renderers of a configuration."""
    config = Config(workers=(("http://w",),), model=models, render=render)  # type: ignore[arg-type]
    made = Renderers(config)
    made.load_configured()
    return made


def test_one_unnamed_model_renders_all(loaded: list[str]) -> None:
    """Any model name is rendered with the one that was given."""
    made = renderers((None, "here/a"))
    assert made.find("x", "y") is made.find(None, "") is not None
    assert not made.asked
    assert made.knows([ListedModel(id="other")])
    made.learn([ListedModel(id="here/b")])
    assert loaded == ["here/a"]


def test_named_models(loaded: list[str]) -> None:
    """Names choose; a request's own name before that of its base model."""
    made = renderers(("a", "here/a"), ("b", "here/b"))
    assert loaded == ["here/a", "here/b"]
    assert made.find("a", "z") is not None
    assert made.find("adapter", "b") is not None
    assert made.find("other", "other") is None


def test_two_unnamed_models(loaded: list[str]) -> None:
    """Which would be whose?"""
    with pytest.raises(ConfigError, match="NAME=DIR_OR_ID"):
        renderers((None, "here/a"), (None, "here/b"))


def test_a_missing_model(loaded: list[str], tmp_path: Path) -> None:
    """The option and its value are named."""
    with pytest.raises(ConfigError, match=r"--model .*/nothing: no model directory"):
        renderers((None, str(tmp_path / "nothing")))


def test_models_that_workers_list(
    loaded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The root, else the id is loaded, once; adapters are their base model's."""
    made = renderers()
    listing = [
        ListedModel(id="one", root="here/root"),
        ListedModel(id="here/two", root="/not/here"),
        ListedModel(id="tuned", root="here/adapter", parent="one"),
        ListedModel(id="three", root="/not/here/either"),
    ]
    assert not made.knows(listing)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            made.learn(listing)
        assert not caplog.records
        made.say_missing()
    assert loaded == ["here/root", "here/two"]
    assert made.find("one", "one") is made.find("tuned", "one") is not None
    assert made.find("here/two", "here/two") is not None
    assert made.find("three", "three") is None
    assert made.knows(listing)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "model three is not rendered" in line
    assert "--model three=DIR_OR_ID" in line
    assert "/not/here/either" in line


def test_models_that_appear_later(
    loaded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """While requests run nothing is loaded; one line says so."""
    made = renderers()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            made.refuse([ListedModel(id="here/late")])
    assert loaded == []
    assert made.find("here/late", "here/late") is None
    assert len(caplog.records) == 1


def test_never(loaded: list[str]) -> None:
    """Switched off nothing is loaded, whatever is named or listed."""
    made = renderers((None, "here/a"), render="never")
    made.learn([ListedModel(id="here/b")])
    assert loaded == []
    assert made.find(MODEL, MODEL) is None


def test_a_name_that_is_no_path(loaded: list[str]) -> None:
    """Of an option it is a mistake; of a worker, a model that is not here."""
    with pytest.raises(ConfigError, match="--model a"):
        renderers((None, "a" * 5000))
    made = renderers()
    made.learn([ListedModel(id="a" * 5000), ListedModel(id="here/b")])
    assert loaded == ["here/b"]
    assert made.find("a" * 5000, "") is None


def test_what_one_worker_does_not_say_another_may(
    loaded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A model listed without its directory first, and with it by the next worker."""
    made = renderers()
    bare, rooted = ListedModel(id="m"), ListedModel(id="m", root="here/m")
    made.learn([bare])
    assert made.find("m", "m") is None
    assert made.knows([bare])
    assert not made.knows([rooted])
    made.learn([rooted])
    assert made.find("m", "m") is not None
    made.learn([ListedModel(id="m", root="here/elsewhere")])
    made.say_missing()
    assert loaded == ["here/m"]
    assert "is not rendered" not in caplog.text
    made.learn([ListedModel(id="late")])
    assert caplog.text.count("is not rendered") == 1


def test_endless_listings_are_not_followed(
    loaded: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that lists a new model each time costs neither memory nor the log."""
    monkeypatch.setattr(models, "MOST_TRIED", 3)
    ours = renderers()
    for number in range(10):
        listed = [ListedModel(id=f"m{number}", root=f"here/{number}", parent=None)]
        (ours.learn if number < 2 else ours.refuse)(listed)
    assert loaded == ["here/0", "here/1"]
    assert caplog.text.count("appeared while the gateway serves") == 1
    assert ours.knows([ListedModel(id="m9", root="here/9", parent=None)])
