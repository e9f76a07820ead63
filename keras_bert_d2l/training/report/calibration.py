"""The charts of a calibration in the report of a run, which `charts.js` draws."""

from collections.abc import Mapping
from typing import Any


def calibration_charts(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the reliability diagrams before and after, and the curve of risk and coverage.

    Args:
        record: The record of the calibration in `report.jsonl`.
    """
    titles = ("Reliability with temperature 1", "Reliability with a fitted temperature")
    parts = zip(titles, record["bins"], strict=True)
    charts: list[dict[str, Any]] = [{"title": title, "bins": bins} for title, bins in parts]
    if record["temperature"] == 1:
        del charts[1]
    if points := record["risk_coverage"]:
        series = [{"isHeldOut": True, "name": "risk", "points": points}]
        curve = {"title": "Risk by coverage", "unit": "coverage", "startsAtZero": True}
        charts.append({**curve, "series": series})
    return charts
