"""Whether a runner or a machine reports, and undisturbed."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from roofwatch.ci.alerts.silence import report_interval
from roofwatch.dashboard.wording import age_text

STATE_WORDS = ("silent", "throttled", "ok")
"""The states, the most urgent first."""
THROTTLED_SHARE = 0.05
"""Share of throttled or shared measurements from which a run counts as disturbed."""
_FORGOTTEN_AFTER = timedelta(days=30)
"""With too few results to know how often a runner reports."""


@dataclass(frozen=True)
class RunnerState:
    symbol: str
    word: str
    explanation: str


def runner_state(
    result_times: Iterable[datetime], degraded_share: float, now: datetime
) -> RunnerState:
    """Return silent, throttled or ok.

    Args:
        result_times: When it reported, at least once.
        degraded_share: Share of throttled or shared measurements in its newest run.
        now: The time.
    """
    interval = report_interval(result_times)
    last = f"last result {age_text(interval.last_at, now=now)}"
    is_forgotten = interval.silent_from is None and now - interval.last_at > _FORGOTTEN_AFTER
    if is_forgotten or interval.is_silent(now):
        return RunnerState("○", "silent", f"silent, {last}")
    # a few throttled blocks happen on every machine
    if degraded_share > THROTTLED_SHARE:
        text = f"throttled or shared {degraded_share:.0%}, {last}"
        return RunnerState("▲", "throttled", text)
    return RunnerState("●", "ok", f"ok, {last}")
