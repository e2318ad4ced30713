"""Which statistics of imported values are judged, and their ratios to a library's."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from roofwatch.model.library import is_library, reference_among
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import RATIO_TO, Better
from roofwatch.model.results import ImportedValue

_MIDDLES = frozenset({"value", "sample", "median", "mean"})
"""Statistics whose ratio says how fast something is."""
_REPEATS_MEDIAN = frozenset(
    {"min", "max", "mean", "q1", "q3", "q_25", "q_75", "hd15iqr", "ld15iqr"}
)
"""Statistics that say the same as the median of the same samples, with more noise."""
_MAX_LABEL = 500
_Place = tuple[str, str, str, str, Better]
"""Case, metric, statistic, unit and direction."""


def judge_middles(values: Iterable[ImportedValue]) -> tuple[ImportedValue, ...]:
    """Take the direction from values that a median makes redundant: these are drawn only.

    A tail such as `p99` stays, for it can get worse alone.
    """
    all_values = tuple(values)
    with_median = {
        (value.case_id, value.implementation, value.metric)
        for value in all_values
        if value.statistic == "median"
    }
    judged: list[ImportedValue] = []
    for value in all_values:
        subject = (value.case_id, value.implementation, value.metric)
        # the median says the same with less noise
        if value.statistic in _REPEATS_MEDIAN and subject in with_median:
            judged.append(value.model_copy(update={"better": Better.UNKNOWN}))
        else:
            judged.append(value)
    return tuple(judged)


def ratios_to_libraries(values: Sequence[ImportedValue]) -> Iterator[ImportedValue]:
    """Divide each value by that of a library for the same case, metric and statistic.

    The reference is named in the metric, so another reference is another series.
    """
    by_place: dict[_Place, dict[str, ImportedValue]] = defaultdict(dict)
    for value in values:
        if value.outcome is Outcome.OK and value.value is not None and value.value > 0:
            by_place[_place_of(value)][value.implementation] = value
    written: set[tuple[str, str, str]] = set()
    for (_, _, statistic, _, better), rows in by_place.items():
        if better is Better.UNKNOWN or statistic not in _MIDDLES:
            continue
        controls = {name for name, row in rows.items() if row.is_control or is_library(name)}
        reference = reference_among(controls)
        if reference is None:
            continue
        for name in sorted(rows.keys() - controls):
            ratio = _ratio(rows[name], rows[reference])
            key = (ratio.case_id, ratio.implementation, ratio.key)
            if key not in written:  # the same metric in another unit
                written.add(key)
                yield ratio


def _place_of(value: ImportedValue) -> _Place:
    return value.case_id, value.metric, value.statistic, value.unit, value.better


def _ratio(row: ImportedValue, reference: ImportedValue) -> ImportedValue:
    if row.statistic == "value":
        title = row.metric
    else:
        title = f"{row.metric} {row.statistic}"
    return ImportedValue(
        case_id=row.case_id,
        implementation=row.implementation,
        metric=f"{title}{RATIO_TO}{reference.implementation}"[:_MAX_LABEL],
        statistic="value",
        unit="ratio",
        better=row.better,
        outcome=Outcome.OK,
        value=(row.value or 0.0) / (reference.value or 1.0),
        code_hash=row.code_hash,
    )
