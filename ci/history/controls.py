"""Controls: rows of a library that are measured in the same run as the code of the project. Pure.

What changes together with a control is the machine, the driver or the library, not the commit.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from roofwatch.ci.causes.explain import Odds, weigh
from roofwatch.ci.history.finding import TrendFinding, is_outcome, is_share
from roofwatch.ci.history.steps import is_judged_import
from roofwatch.model.history import Cause, SeriesKey

_LIBRARY = re.compile(
    r"(torch|eager|native|hf|huggingface|transformers|cublas(lt)?|cudnn|rocblas|hipblas(lt)?|miopen)"
    r"([-_. ]?(eager|compile|compiled|inductor|native|sdpa|baseline|naive|reference))?",
    re.IGNORECASE,
)
"""Names of implementations that are libraries, for example `torch.compile` or `huggingface`."""
_SAME_SHARE = 1 / 2
"""A control that changed by at least this share of a change, on the log scale, explains it."""
_CONTROL_ODDS = 9.0
"""Odds of the machine if a control of the same run changed with the series."""

_Place = tuple[str, str, str, str]


def is_control(series: SeriesKey) -> bool:
    """Whether an imported series is of a library."""
    is_other_tool = is_judged_import(series) and not is_share(series)
    return is_other_tool and _LIBRARY.fullmatch(series.implementation) is not None


def settle_controls(findings: Iterable[TrendFinding]) -> Iterator[TrendFinding]:
    """Use the changes of controls as evidence about other series, and leave them out.

    A change of a series at the place of a change of its control, in the same direction and of about
    its size, is the runner's, and has no p-value of its own. Failures of a control stay.
    """
    everything = list(findings)
    controls: dict[_Place, list[TrendFinding]] = defaultdict(list)
    for finding in everything:
        if is_control(finding.change.series) and not is_outcome(finding.change):
            controls[_place(finding)].append(finding)
    for finding in everything:
        series = finding.change.series
        if is_outcome(finding.change) or not is_judged_import(series):
            yield finding
        elif not is_control(series):
            nearby = controls.get(_place(finding), ())
            control = next((one for one in nearby if _explains(one, finding)), None)
            yield finding if control is None else _of_the_machine(finding, control)


def _place(finding: TrendFinding) -> _Place:
    series = finding.change.series
    return series.project, series.case_id, series.runner_class, series.metric


def _explains(control: TrendFinding, finding: TrendFinding) -> bool:
    is_same_direction = control.change.verdict is finding.change.verdict
    is_large_enough = abs(control.log_change) >= _SAME_SHARE * abs(finding.log_change)
    return is_same_direction and is_large_enough and control.reach.touches(finding.reach)


def _of_the_machine(finding: TrendFinding, control: TrendFinding) -> TrendFinding:
    relative = control.change.relative_change or 0.0
    sentence = (
        f"{control.change.series.implementation}, measured in the same runs, changed by "
        f"{relative:+.1%} at the same place"
    )
    return replace(
        finding, suspects=weigh({Cause.RUNNER: Odds(_CONTROL_ODDS, sentence)}), p_value=None
    )
