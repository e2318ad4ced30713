"""What a figure of measurements says of one of them to who points at it. Pure."""

from __future__ import annotations

from html import escape

from roofwatch.collector.record.measurement import CaseRecord, Measurement
from roofwatch.collector.record.metrics import metric


def measured_hover(case: CaseRecord, measurement: Measurement, rate: str) -> str:
    """Its case and implementation, a rate in words, the time, and how near the roof that is. It has a time."""
    assert measurement.median_ns is not None
    lines = [
        f"<b>{escape(case.case_id)}</b> {escape(measurement.implementation)}",
        f"{rate} in {metric('median_ns').format(measurement.median_ns)}",
    ]
    if measurement.utilisation is not None:
        lines.append(f"{metric('utilisation').format(measurement.utilisation)} of the {measurement.bound} roof")
    return "<br>".join(lines)
