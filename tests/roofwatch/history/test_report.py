"""How bisections end, in values and words."""

import io
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from roofwatch.ci.bisect.measurements import compare_pairs
from roofwatch.ci.bisect.search import MadeFrom, Named, SearchPlan
from roofwatch.collector.run_plan import RunPlan
from roofwatch.db.bisections import Standing
from roofwatch.db.values import BisectionState
from roofwatch.history.plan import BisectPlan
from roofwatch.history.report import end_of, exit_status, sentences, step_line, table
from roofwatch.history.search import Bisected
from roofwatch.history.state import BisectState, Visit
from tests.builders import NOON, make_commit_ref, sha_of

REFS = [make_commit_ref(number) for number in range(1, 6)]
SLOWER = (0.048, 0.05, 0.052, 0.049, 0.051, 0.05, 0.047, 0.053)
EQUAL = (0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0)
ASKED = BisectPlan(
    Path(__file__), "total/n=500/float32/fwd", None, sha_of(0), sha_of(5), RunPlan(), Path("out"), SearchPlan(), 0.01
)


def visit(position: int, log_ratios: tuple[float, ...], trouble: str = "") -> Visit:
    finished_at = NOON + timedelta(minutes=position)
    return Visit(
        position=position,
        log_ratios=log_ratios,
        block_count=len(log_ratios),
        trouble=trouble,
        probability=0.5,
        finished_at=finished_at,
    )


def bisected(*visits: Visit, named: Named | None, is_decided: bool = True) -> Bisected:
    state = BisectState(
        asked={},
        commits=tuple(ref.sha for ref in REFS),
        implementation="eager",
        made=(MadeFrom("a"), MadeFrom("a"), MadeFrom("b"), MadeFrom(trouble="broken\x1b[31m"), *[MadeFrom("c")] * 2),
        visits=visits,
    )
    ends = compare_pairs(visits[0].log_ratios, threshold=0.01)
    return Bisected(state, sha_of(0), "a project", ends, named, is_decided)


def told(found: Bisected) -> str:
    return "\n".join(sentences(end_of(found, REFS), ASKED))


def test_one_commit_is_named_with_its_author_its_change_and_what_was_left_out() -> None:
    found = bisected(visit(4, SLOWER), visit(1, SLOWER[:3]), visit(0, EQUAL[:3]), named=Named(1, 1, 0.99))

    ended = end_of(found, REFS)

    assert ended.state is BisectionState.FOUND
    assert exit_status(ended) == 0
    assert ended.answer is not None
    assert ended.answer.relative_change == pytest.approx(0.0513, abs=0.001)
    low, high = ended.answer.relative_interval
    assert 0.04 < low < 0.0513 < high < 0.06
    assert [known.standing for known in ended.progress.commits] == [
        *(Standing.MEASURED, Standing.MEASURED, Standing.SKIPPED, Standing.OPEN, Standing.MEASURED),
    ]
    text = told(found)
    assert f"{REFS[1].sha} is the first slower commit: {REFS[1].subject} ({REFS[1].author})" in text
    assert "28 measurements of 3 of 5 commits and the good end" in text
    assert f"skipped: {REFS[2].short_sha}" in text
    assert "\x1b" not in text


def test_a_range_is_named_where_what_lies_between_cannot_be_measured() -> None:
    found = bisected(visit(4, SLOWER), visit(3, SLOWER[:3]), visit(1, EQUAL[:3]), named=Named(2, 3, 0.99))

    ended = end_of(found, REFS)

    assert ended.state is BisectionState.NARROWED
    assert exit_status(ended) == 1
    assert ended.answer is not None
    assert (ended.answer.first, ended.answer.last) == (REFS[2], REFS[3])
    assert all(ref.sha in told(found) for ref in REFS[2:4])


def test_ends_that_do_not_differ_name_nobody() -> None:
    ended = end_of(bisected(visit(4, EQUAL), named=None), REFS)

    assert ended.state is BisectionState.NO_CHANGE
    assert ended.answer is None
    assert exit_status(ended) == 1
    assert "the ends do not differ by 1.0%" in ended.notes[0]


def test_ends_that_noise_hides_leave_it_open() -> None:
    noisy = tuple(30 * each for each in EQUAL)

    ended = end_of(bisected(visit(4, noisy), named=None, is_decided=False), REFS)

    assert ended.state is BisectionState.UNDECIDED
    assert "is not clear" in ended.notes[0]


def test_a_commit_on_neither_level_is_remarked() -> None:
    halfway = tuple(each / 2 for each in SLOWER)
    found = bisected(visit(4, SLOWER), visit(3, SLOWER), visit(1, halfway), named=Named(2, 3, 0.99))

    assert "more than one commit changed it" in told(found)


def test_the_table_has_a_row_for_each_commit_and_no_control_characters() -> None:
    output = io.StringIO()
    ended = end_of(bisected(visit(4, SLOWER), named=Named(1, 1, 0.99)), REFS)

    Console(file=output, width=200).print(table(ended.progress))

    assert all(ref.short_sha in output.getvalue() for ref in REFS)
    assert "\x1b" not in output.getvalue()


def test_each_step_is_a_line() -> None:
    state = bisected(visit(4, SLOWER), visit(1, SLOWER[:3]), named=None).state

    assert step_line(state, REFS) == f"{REFS[1].short_sha} +5.1% in 3 pairs: the change is here or before with 50.0%"
    assert "the bad end against the good end" in step_line(state.with_fields(visits=state.visits[:1]), REFS)
    failed = state.with_fields(visits=(*state.visits, visit(2, (), "wrong\x1b[31m")))
    assert step_line(failed, REFS).startswith(f"{REFS[2].short_sha} skipped: wrong")
