"""The drift of a time as a finding. Pure."""

import math

import numpy as np

from roofwatch.ci.causes.explain import NEAR_RUNS, ChangeContext, explain_drift
from roofwatch.ci.changepoint.chance import chance_of_drift
from roofwatch.ci.changepoint.drift import Drift
from roofwatch.ci.history.finding import TrendFinding, windows_between
from roofwatch.ci.history.level_changes import clock_checked, levels_in_words, make_change
from roofwatch.ci.history.steps import Timeline, weeks_since
from roofwatch.model.verdict import Status


def drift_finding(line: Timeline, drift: Drift) -> TrendFinding:
    """Report a drift as a change at the commit after the old level.

    Args:
        line: Since the last step.
        drift: As found there.
    """
    count = len(line.commits)
    start = min(drift.start, count - 2)
    if drift.end is None:
        end = count - 1
    else:
        end = drift.end
    old_values = line.values[: start + 1]
    before = float(np.median(old_values))
    after = before * (1 + drift.relative_change)
    log_change = math.log1p(drift.relative_change)
    old_runs = line.runs(start - NEAR_RUNS, start + 1)
    new_runs = line.runs(count - NEAR_RUNS, count)
    weeks = weeks_since(line.dates)
    rate = _rate_in_words(line, drift)
    # a history that spans less than a week has a rate by commit
    weekly_change = None
    if weeks is not None:
        weekly_change = drift.rate
    change = make_change(
        line=line,
        index=start + 1,
        before=before,
        after=after,
        evidence=f"{rate}, {levels_in_words(before, after)}, {end - start} commits",
        is_gradual=True,
        weekly_change=weekly_change,
    )
    # the start is known to about a tenth of the drift
    slack = max(1, (end + 1 - start) // 10)
    window, _ = windows_between(
        commits=line.commits,
        first=max(1, start + 1 - slack),
        last=min(count - 1, start + 1 + slack),
    )
    return TrendFinding(
        change=clock_checked(
            change=change,
            before=old_runs,
            after=new_runs,
            log_change=log_change,
        ),
        status=Status.UNCONFIRMED,
        suspects=explain_drift(
            ChangeContext(
                before=old_runs,
                after=new_runs,
                log_change=log_change,
            )
        ),
        window=window,
        reach=window,
        p_value=_p_value_of_drift(line, drift),
        measured_on=line.dates[end],
        outline=line.outline(start + 1),
    )


def _rate_in_words(line: Timeline, drift: Drift) -> str:
    unit = "a week"
    if weeks_since(line.dates) is None:
        unit = "a commit"
    rate = f"{drift.rate:+.2%} {unit}"
    if drift.end is None:
        return f"median time drifts by {rate} since then"
    return f"median time drifted by {rate} from then to {line.commits[drift.end].short_sha}"


def _p_value_of_drift(line: Timeline, drift: Drift) -> float:
    """The larger p-value: of the likelihood however often one looks (Ville), and of the slope in
    dependent noise.
    """
    times = weeks_since(line.dates)
    if times is None:
        times = np.arange(len(line.commits), dtype=np.float64)
    of_likelihood = math.exp(-drift.likelihood_ratio / 2)
    return max(of_likelihood, chance_of_drift(line.values, times, drift))
