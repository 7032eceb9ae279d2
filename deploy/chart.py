"""The Helm chart, rendered and checked by Helm itself (the Python package of its SDK).

`python -m deploy.chart` does one thing, told as JSON on stdin, and answers in JSON: it
is a large library in another language, and has a process of its own.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CHART = HERE / "helm" / "kv-gateway"
MANIFESTS = HERE / "manifests"
RELEASE, NAMESPACE = "kv-gateway", "llm"
OPTIONAL = ("servicemonitor.yaml", "prometheusrule.yaml")
"""Manifests for clusters with the operator of Prometheus only."""
LEFT_OUT = ("NOTES.txt", "dashboards.yaml", "tests/ready.yaml")
HEAD = "# Rendered from deploy/helm/kv-gateway by `python -m deploy`: edit that.\n"
LIMIT_S = 60


class ChartError(Exception):
    """Helm refuses the chart or the values; the text is Helm's."""


def is_available() -> bool:
    """Whether Helm can be asked on this machine."""
    return importlib.util.find_spec("helm_python") is not None


def render(
    values: Mapping[str, Any], *, release: str = RELEASE, namespace: str = NAMESPACE
) -> dict[str, str]:
    """Each template by its path below `templates`, rendered; ChartError."""
    asked = {"values": values, "release": release, "namespace": namespace}
    rendered: dict[str, str] = _ask({"what": "render", **asked})
    return {path.partition("/templates/")[2]: text for path, text in rendered.items()}


def lint(values: Mapping[str, Any]) -> list[str]:
    """What Helm's linter finds, but for hints; ChartError."""
    found: dict[str, Any] = _ask({"what": "lint", "values": values})
    hints = ("icon is recommended", "symbolic link")
    said = [str(message["error"]) for message in found["messages"]]
    said += [str(error) for error in found["errors"]]
    return [text for text in said if not any(hint in text for hint in hints)]


def values_of(path: Path) -> dict[str, Any]:
    """A file of values, read by Helm; ChartError."""
    values: dict[str, Any] = _ask({"what": "values", "text": path.read_text()})
    return values


def manifests() -> Iterator[tuple[Path, str]]:
    """The plain manifests: each file's path and text; ChartError."""
    rendered = render(values_of(MANIFESTS / "values.yaml"))
    for path, text in sorted(rendered.items()):
        if path not in LEFT_OUT and text.strip():
            folder = MANIFESTS / "monitoring" if path in OPTIONAL else MANIFESTS
            yield folder / path, HEAD + _plain(text)


def _plain(text: str) -> str:
    """Without what says that Helm looks after it, and without empty lines around."""
    lines = [x for x in text.strip().splitlines() if "managed-by: Helm" not in x]
    return "\n".join(lines).removeprefix("---\n") + "\n"


def _ask(request: Mapping[str, Any]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.chart"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=HERE.parent,
        check=False,
    )
    if done.returncode:
        said = [x for x in done.stderr.splitlines() if "symbolic link" not in x]
        raise ChartError("\n".join(said) or f"status {done.returncode}")
    return json.loads(done.stdout)


def _answer(request: Mapping[str, Any]) -> Any:
    """In a process of its own: what Helm says; its error is the end."""
    import helm_python

    if request["what"] == "values":
        return helm_python.values_from_yaml(request["text"])
    if request["what"] == "lint":
        return helm_python.lint(CHART, request["values"], strict=True)
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(request["values"])
        return chart.render(
            request["values"], name=request["release"], namespace=request["namespace"]
        )


def _main() -> int:
    try:
        json.dump(_answer(json.load(sys.stdin)), sys.stdout)
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
