"""What `roofwatch tune` tried, as tables."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from roofwatch.ci.messages import count_of
from roofwatch.console.terminal import make_table
from roofwatch.measurement.tune import TuneResult
from roofwatch.model.machine import Configuration
from roofwatch.model.metrics import format_bytes, format_ns
from roofwatch.model.optional import map_optional
from roofwatch.model.tuning import Loss, TriedConfiguration, TunedCase

_COLUMNS = (
    "configuration",
    "result",
    "measured",
    "predicted",
    "registers",
    "shared",
    "local",
    "occupancy",
)
_RESULTS = {
    Loss.NOT_COMPILED: "does not compile: {}",
    Loss.DOES_NOT_FIT: "{}",
    Loss.SPILLS: "spills: {}",
    Loss.PREDICTED_SLOWER: "{}",
    Loss.FAILED: "failed: {}",
    Loss.SLOWER: "{}",
    Loss.TIED: "tied: {}",
    Loss.UNKNOWN: "{}",
}


def headline(result: TuneResult) -> str:
    """How many choices were made, and on what evidence."""
    chosen = [case for case in result.cases if case.chosen is not None]
    measured = [case for case in chosen if case.evidence == "measured"]
    parts: list[str] = []
    if measured:
        parts.append(f"{count_of(len(measured), 'choice')} measured on {measured[0].device}")
    if len(chosen) > len(measured):
        predicted = count_of(len(chosen) - len(measured), "choice")
        parts.append(f"{predicted} predicted, not measured: no GPU here runs the kernel")
    if len(result.cases) > len(chosen):
        parts.append(f"{count_of(len(result.cases) - len(chosen), 'case')} without a choice")
    return "; ".join(parts or ["nothing was chosen"])


def tables(cases: Sequence[TunedCase]) -> Iterator[Table]:
    """One table per choice, the chosen configuration first."""
    for case in cases:
        rows = [_row(tried) for tried in case.tried]
        yield make_table(_COLUMNS, rows, title=_title(case), left_column_count=2, omit_empty=True)


def in_words(configuration: Configuration) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration.items())


def _title(case: TunedCase) -> str:
    name = case.implementation if case.function is None else case.function
    where = case.device or case.target
    evidence = {
        "measured": "measured",
        "predicted": "predicted, not measured",
        "none": "no choice",
    }[case.evidence]
    parts = [f"{case.case_id} {name} on {where}: {evidence}", case.ending]
    return "; ".join(filter(None, parts))


def result_in_words(tried: TriedConfiguration) -> str:
    """Say that a configuration is chosen, or why it lost, in one line."""
    if tried.loss is None:
        return "chosen"
    # a compiler shows the source first, and says what is wrong at the end
    lines = tried.detail.splitlines() or [""]
    return _RESULTS[tried.loss].format(lines[-1])


def _row(tried: TriedConfiguration) -> tuple[object, ...]:
    occupancy = tried.theoretical_occupancy
    return (
        in_words(tried.configuration),
        result_in_words(tried),
        map_optional(format_ns, tried.median_ns),
        map_optional(format_ns, tried.predicted_ns),
        tried.registers,
        map_optional(format_bytes, tried.shared_bytes),
        map_optional(format_bytes, tried.local_bytes),
        None if occupancy is None else f"{occupancy:.0%}",
    )
