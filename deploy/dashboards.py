"""Grafana dashboards, made from their description: layout and JSON, no content."""

import json
from typing import Any

from deploy.record import Dashboard, Line, Panel

COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA = 39


def to_json(dashboard: Dashboard) -> str:
    """A dashboard as Grafana imports it, or reads it from a file."""
    whole = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.meaning,
        "tags": ["kv-gateway"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _job()]},
        "links": [_links()],
        "panels": _panels(dashboard),
    }
    return json.dumps(whole, indent=2) + "\n"


def _panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    places = _flow(dashboard.panels)
    return [
        _panel(number, panel, place)
        for number, (panel, place) in enumerate(
            zip(dashboard.panels, places, strict=True), 1
        )
    ]


def _flow(panels: tuple[Panel, ...]) -> list[dict[str, int]]:
    """Each panel at the highest place it fits, from left to right."""
    skyline = [0] * COLUMNS
    places = []
    for panel in panels:
        spots = range(COLUMNS - panel.width + 1)
        tops = {x: max(skyline[x : x + panel.width]) for x in spots}
        x = min(tops, key=lambda spot: (tops[spot], spot))
        skyline[x : x + panel.width] = [tops[x] + panel.height] * panel.width
        places.append({"x": x, "y": tops[x], "w": panel.width, "h": panel.height})
    return places


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [
            _target(chr(ord("A") + index), line, table=panel.kind == "table")
            for index, line in enumerate(panel.lines)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _colours(panel)},
        "options": _options(panel),
    }


def _target(letter: str, line: Line, *, table: bool) -> dict[str, Any]:
    target = {
        "refId": letter,
        "datasource": SOURCE,
        "expr": line.expr,
        "legendFormat": line.legend or "__auto",
    }
    return target | ({"format": "table", "instant": True} if table else {})


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.unit == "percentunit":
        defaults |= {"min": 0, "max": 1}
    if panel.steps:
        steps = [{"value": value, "color": colour} for value, colour in panel.steps]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 40 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
        }
    return defaults


def _colours(panel: Panel) -> list[dict[str, Any]]:
    return [
        {
            "matcher": {"id": "byName", "options": series},
            "properties": [
                {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
            ],
        }
        for series, colour in panel.colours.items()
    ]


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": last, "graphMode": "area", "colorMode": "value"}
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {}


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }


def _job() -> dict[str, Any]:
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(kv_gateway_index_blocks, job)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".+",
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _links() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": "kv-gateway",
        "tags": ["kv-gateway"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }
