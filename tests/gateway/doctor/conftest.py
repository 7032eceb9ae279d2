"""The doctor's gateways render with the renderer that all tests share."""

import pytest


@pytest.fixture(autouse=True)
def _loaded_once(loaded_once: None) -> None:
    """Most of a checkup's time would be the loading of the model."""
