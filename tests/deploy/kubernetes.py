"""Kubernetes objects of YAML, and whether they are what Kubernetes takes."""

from typing import Any

import kubernetes_validate
import yaml

RELEASES = ("1.30", "1.37")
"""The oldest that the chart is for, and the newest whose schemas there are."""
OF_OPERATORS = {"monitoring.coreos.com/v1"}


def objects(text: str) -> list[Any]:
    """The objects of a file."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def check(text: str) -> list[Any]:
    """The objects of a file, each of them checked strictly by its schema.

    A text that is no YAML of objects (notes) has none.
    """
    found = [one for one in objects(text) if isinstance(one, dict)]
    for one in found:
        if one["apiVersion"] not in OF_OPERATORS:
            for release in RELEASES:
                kubernetes_validate.validate(one, release, strict=True)
    return found
