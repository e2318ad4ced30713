"""Tables of the comparison of two records, and of noise floors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.ci.ab.prediction import StepChange
from roofwatch.ci.claims.cases import CaseEvidence
from roofwatch.ci.judge.change import Change
from roofwatch.ci.judge.ratios import LibraryEvidence
from roofwatch.ci.report.change_words import counted_changes
from roofwatch.ci.report.new_implementations import NewImplementation
from roofwatch.ci.report.pull_request import PullRequestJudgement
from roofwatch.console.terminal import make_table
from roofwatch.model.verdict import Verdict
from roofwatch.tables.cells import joined
from roofwatch.tables.changes import changes_table, times_table

if TYPE_CHECKING:  # they need numpy, and comparing files does not
    pass

_RATIO_ROWS = 10


def judgement_tables(judged: PullRequestJudgement) -> list[Table]:
    """Everything that changed or is undecided, and what it costs the steps of workloads."""
    predicted = _step_table(judged.step_predictions)
    changes = [*counted_changes(judged), *judged.accuracy_changes]
    cases = [change for change in changes if isinstance(change.evidence, CaseEvidence)]
    others = [change for change in changes if not isinstance(change.evidence, CaseEvidence)]
    timed = times_table(cases)
    change_table = changes_table(others)
    new = make_table(
        ("kernel", "implementation", "result", "compiled", "time"),
        [
            (
                implementation.kernel,
                implementation.implementation,
                implementation.result,
                _compiled_text(implementation),
                "\n".join(map(str, implementation.times)),
            )
            for implementation in judged.new_implementations
        ],
        title="new implementations",
    )
    ratios = _ratio_table(judged.library_ratios)
    return [table for table in (timed, change_table, new, ratios, predicted) if table.row_count]


def _compiled_text(implementation: NewImplementation) -> str:
    lines = [f"{words} ({joined(targets)})" for words, targets in implementation.compiled]
    return "\n".join(lines)


def _step_table(predictions: Iterable[StepChange]) -> Table:
    rows: list[tuple[str, ...]] = []
    for prediction in predictions:
        source = prediction.evidence
        low, high = prediction.interval
        rows.append(
            (
                source.kernel,
                source.implementation,
                f"{source.kernel_change:+.1%}",
                prediction.case_id,
                f"{source.share:.1%}",
                f"{prediction.relative_change:+.1%}",
                f"{low:+.1%} to {high:+.1%}",
            )
        )
    columns = ("kernel", "implementation", "change", "workload", "share", "step", "interval")
    return make_table(columns, rows, title="predicted change of steps")


def _ratio_table(ratios: Sequence[Change[LibraryEvidence]]) -> Table:
    """Make a table of the ratios to a library that changed most."""
    title = "time / library's time"
    # the others changed less than the shown ones
    if len(ratios) > _RATIO_ROWS:
        title += f", the {_RATIO_ROWS} of {len(ratios)} that changed most"
    rows: list[tuple[str, ...]] = []
    for ratio in ratios[:_RATIO_ROWS]:
        base, head = ratio.values
        rows.append(
            (
                ratio.case_id,
                ratio.implementation,
                ratio.evidence.library,
                f"{base:.3g}",
                f"{head:.3g}",
                f"{ratio.relative_change:+.1%}",
            )
        )
    columns = ("case", "implementation", "library", "base", "head", "change")
    return make_table(columns, rows, title=title)


def remark_lines(judged: PullRequestJudgement) -> list[str]:
    """Why the records are not compared, and which dependencies differ."""
    lines = [f"not compared: {refusal}" for refusal in judged.refusals]
    if judged.dependencies is not None:
        lines.append(f"note: {judged.dependencies}")
    return lines


def noise_floor_table(noise: NoiseFloor) -> Table:
    """One row per case: how much blocks of the same code differ, and the change detectable with a
    number of blocks.
    """
    blocks = sorted({count for case in noise.cases for count in case.detectable_change})
    rows: list[tuple[object, ...]] = []
    for case in sorted(noise.cases, key=lambda case: -case.noise_floor):
        detectable = [f"{case.detectable_change[count]:+.1%}" for count in blocks]
        alarm = None
        # a false alarm weighs more than a wide interval
        if case.is_false_alarm:
            alarm = "false alarm"
        elif case.is_significant:
            alarm = "interval"
        rows.append(
            (
                case.case_id,
                case.implementation,
                case.block_count,
                f"{case.noise_floor:.2%}",
                *detectable,
                alarm,
            )
        )
    counts = [f"detectable with {count}" for count in blocks]
    return make_table(
        ("case", "implementation", "blocks", "noise floor", *counts, "alarm"),
        rows,
        left_column_count=2,
    )


def next_steps(judged: PullRequestJudgement) -> Iterator[str]:
    """Say how to get what is missing, line by line."""
    if judged.missing:
        yield f"required by [check], and missing: {', '.join(judged.missing)}"
    if any(case.evidence.claimed.is_time_missing for case in judged.cases):
        yield "time not measured: use a machine with a GPU, or comment `/roofwatch run`"


def changed_sizes(judged: PullRequestJudgement) -> list[dict[str, Any]]:
    """The size of each timed change and of what is undecided, regressions first, for programs.
    What broke or works again has words and no size.
    """
    order = [Verdict.REGRESSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE]
    changed = [
        case
        for case in judged.cases
        if case.verdict.is_change
        or (case.relative_interval is not None and case.verdict is Verdict.INCONCLUSIVE)
    ]
    changed.sort(key=lambda case: order.index(case.verdict))
    return [
        {
            "case_id": case.case_id,
            "implementation": case.implementation,
            "verdict": case.verdict,
            "words": case.evidence.claimed.text,
            "relative_change": case.relative_change,
            "relative_interval": case.relative_interval,
            "base_ns": case.base,
            "head_ns": case.head,
        }
        for case in changed
    ]


def claim_counts(judged: PullRequestJudgement) -> dict[str, int]:
    """Count the cases by what may be claimed about them."""
    return dict(Counter(case.evidence.claimed.text for case in judged.cases).most_common())
