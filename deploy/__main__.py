"""`python -m deploy` writes every generated file anew."""

from collections.abc import Iterator
from pathlib import Path

from deploy import chart
from deploy.boards import DASHBOARDS
from deploy.dashboards import to_json
from deploy.rules import rule_tests, rules

HERE = Path(__file__).parent


def files() -> Iterator[tuple[Path, str]]:
    """Each generated file and its text."""
    yield HERE / "prometheus" / "rules.yaml", rules()
    yield HERE / "prometheus" / "rules_test.yaml", rule_tests()
    for dashboard in DASHBOARDS:
        yield HERE / "grafana" / f"{dashboard.uid}.json", to_json(dashboard)


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text)
    if chart.is_available():
        for path, text in chart.manifests():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
