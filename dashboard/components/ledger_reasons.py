"""Why a commit of the ledger changed something, and why to believe it."""

from collections.abc import Iterator

from roofwatch.ci.history.commit_rows import CommitEntry, cost_of
from roofwatch.ci.history.summary import FalseAlarms
from roofwatch.ci.messages import count_of
from roofwatch.dashboard.wording import (
    device_text,
    escaped,
    percent,
    shortened,
)
from roofwatch.model.history import ChangePoint, Regression
from roofwatch.model.triage import TriagedRegression

_LEAST_WEIGHT = 0.02
"""Weight from which a second cause is listed."""
_FULL_BAR_PX = 40


def suspects_html(regression: Regression) -> str:
    if not regression.suspects:
        cause = escaped(str(regression.cause))
        return f"<p>{cause}; no causes were weighed.</p>"
    rows: list[str] = []
    for number, suspect in enumerate(regression.suspects[:3]):
        # what is all but excluded would only take place
        if number and suspect.weight < _LEAST_WEIGHT:
            continue
        width_px = round(_FULL_BAR_PX * suspect.weight)
        cause = escaped(str(suspect.cause))
        sentence = escaped(shortened(suspect.sentence, length=240))
        rows.append(
            f"<li><span class=rw-bar><i class=slower style='width:{width_px}px'></i></span>"
            f"<b>{cause} {suspect.weight:.0%}</b> {sentence}</li>"
        )
    return f"<ul class=rw-list>{''.join(rows)}</ul>"


def reasons_html(
    row: CommitEntry,
    part: TriagedRegression,
    change: ChangePoint,
    false_alarms: FalseAlarms,
) -> str:
    reasons = [
        *_probability_reasons(row, false_alarms),
        f"Series: {escaped(change.evidence)}",
        _extent_text(part.regression, change),
        _clock_text(change),
    ]
    items = [f"<li>{reason}</li>" for reason in reasons if reason]
    return f"<ul class=rw-list>{''.join(items)}</ul>"


def _probability_reasons(row: CommitEntry, false_alarms: FalseAlarms) -> Iterator[str]:
    if row.is_confirmed:
        yield "<b>Confirmed</b> by a pair of interleaved runs, or by facts that have no noise."
        return
    if not false_alarms.decided_count:
        yield (
            f"<b>Probability {row.probability:.0%}</b>, before any alert of this project was "
            "decided. No pair has measured it yet."
        )
        return
    decided = count_of(false_alarms.decided_count, "earlier alert")
    yield (
        f"<b>Probability {row.probability:.0%}</b>: {false_alarms.true_count} of {decided} of this "
        "project were real. No pair has measured it yet."
    )


def _extent_text(regression: Regression, change: ChangePoint) -> str:
    """Write on how many of the series with this metric it was seen, and how far."""
    is_slower = cost_of(change) > 0
    moved_points: list[ChangePoint] = []
    for point in regression.change_points:
        is_same_metric = point.series.metric == change.series.metric
        # what became faster at the same commit speaks neither for nor against it
        is_same_way = (cost_of(point) > 0) == is_slower
        if is_same_metric and is_same_way:
            moved_points.append(point)
    devices = {device_text(point.series.runner_class) for point in moved_points}
    # machine code has no device
    devices.discard("")
    text = f"{len(moved_points)} series moved this way"
    if devices:
        devices_text = ", ".join(sorted(devices))
        text += f", on {devices_text}"
    if regression.typical_change is not None:
        text += f"; typically {percent(regression.typical_change)}"
        if regression.change_spread is not None:
            text += f" ± {regression.change_spread:.1%}"
    return escaped(f"{text}.")


def _clock_text(change: ChangePoint) -> str:
    if change.series.is_imported:
        return "Clocks: unknown, the other tool's file has none."
    # compiled code
    if not change.series.runner_class:
        return "Clocks do not matter: machine code has no noise."
    if change.degraded_by:
        reasons = ", ".join(change.degraded_by).replace("_", " ")
        return f"<b>Clocks: {escaped(reasons)}</b> in most runs on one side."
    return "Clocks: most runs on both sides were neither throttled nor shared."
