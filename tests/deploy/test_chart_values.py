"""The Helm chart's values: which are refused, and that each has a schema."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from deploy import chart
from tests.deploy.test_chart import SOME

pytestmark = pytest.mark.skipif(
    not chart.is_available(), reason="Helm's SDK is not installed (helm-python-sdk)"
)

WRONG: list[tuple[dict[str, Any], str]] = [
    ({**SOME, "replica": 2}, "replica"),
    ({**SOME, "replicas": "two"}, "two"),
    ({"workers": {"services": [{"namespace": "llm"}]}}, "name"),
    ({"workers": {"services": [{"name": "a/b"}]}}, "a/b"),
    ({"workers": {"services": [{"name": ""}]}}, "''"),
    ({"workers": {"services": [{"name": "a", "port": 0}]}}, "0"),
    ({"workers": {"dns": ["no-port"]}}, "no-port"),
    ({**SOME, "drain": {"timeoutSeconds": -1}}, "-1"),
    ({**SOME, "monitoring": {"serviceMonitor": {"interval": "15"}}}, "15"),
    ({**SOME, "keys": {"admin": "secret"}}, "secret"),
]
"""Values that are refused, and what of the refusal."""


@pytest.mark.parametrize(("values", "said"), WRONG)
def test_values_that_are_refused(values: dict[str, Any], said: str) -> None:
    """By the schema, before anything is made of them."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate(values, schema)
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "no workers"),
        ({**SOME, "replica": 2}, "replica"),
        ({**SOME, "processes": 2, "adminPort": 0}, "adminPort"),
    ],
)
def test_helm_refuses_them(values: dict[str, Any], said: str) -> None:
    """By that schema; and a gateway that could have no worker."""
    with pytest.raises(chart.ChartError, match=said):
        chart.render(values)


def test_every_value_has_a_schema() -> None:
    """And what the schema knows has a default that says what it is."""
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, told in schema["properties"].items():
        if "properties" in told and name != "resources":
            assert set(values[name]) == set(told["properties"]), name
