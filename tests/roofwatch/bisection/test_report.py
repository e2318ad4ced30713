"""Results of bisections as values, as text and in the store."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from roofwatch.bisection.job import exit_status, result_of, sentences
from roofwatch.bisection.stored import StoredBisection
from roofwatch.ci.bisect.pairs import PairResult
from roofwatch.ci.bisect.priors import BuildInputs
from roofwatch.ci.bisect.search import SearchEnd, begin_search, with_inputs, with_pair
from roofwatch.db.bisections import begin_bisection
from roofwatch.db.leases import ClaimLostError
from roofwatch.model.triage import (
    BisectionProgress,
    BisectionRange,
    BisectionResult,
    BisectionState,
    CommitStatus,
)
from tests.builders import NOON, PROJECT, make_commit_ref, sha_of
from tests.db.test_bisections import PROGRESS, RUNNING, only

REFS = [make_commit_ref(number) for number in range(1, 6)]
SLOWER = (0.048, 0.05, 0.052, 0.049, 0.051, 0.05, 0.047, 0.053)
EQUAL = (0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001, 0.0)
SERIES = "total/n=500/float32/fwd"
INPUTS = (*map(BuildInputs, "aab"), BuildInputs(error="broken\x1b[31m"), *map(BuildInputs, "cc"))


Visit = tuple[int, tuple[float, ...]]
"""Position and log ratios of a measured commit."""


def progress_of(bad_end: Visit, *others: Visit, has_inputs: bool = True) -> BisectionProgress:
    progress = begin_search(REFS)
    for position, log_ratios in (bad_end, *others):
        pair = PairResult(log_ratios, len(log_ratios))
        progress = with_pair(progress, position, pair, NOON + timedelta(minutes=position))
        if has_inputs and not progress.is_weighed:
            progress = with_inputs(progress, INPUTS)
    return progress


def found_in(first: int, last: int, *visits: Visit) -> BisectionResult:
    state = BisectionState.FOUND if first == last else BisectionState.NARROWED
    return result_of(progress_of(*visits), SearchEnd(state, first, last, 0.99), 0.01)


def test_the_result_names_everything_that_a_reader_needs_of_the_commit() -> None:
    ended = found_in(1, 1, (4, SLOWER), (1, SLOWER[:3]), (0, EQUAL[:3]))

    assert ended.state is BisectionState.FOUND
    assert exit_status(ended) == 0
    assert ended.answer is not None
    assert ended.answer.relative_change == pytest.approx(0.0513, abs=0.001)
    assert ended.answer.relative_interval is not None
    low, high = ended.answer.relative_interval
    assert 0.04 < low < 0.0513 < high < 0.06
    assert [known.status for known in ended.progress.commits] == [
        CommitStatus.MEASURED,
        CommitStatus.MEASURED,
        CommitStatus.SKIPPED,
        CommitStatus.OPEN,
        CommitStatus.MEASURED,
    ]
    text = "\n".join(sentences(SERIES, ended))
    assert f"{REFS[1].sha} is the first slower commit: {REFS[1].subject} ({REFS[1].author})" in text
    assert "28 measurements of 3 of 5 commits and the good end" in text
    assert f"skipped: {REFS[2].short_sha}" in text
    assert "\x1b" not in text


def test_commits_that_cannot_be_measured_give_a_range() -> None:
    ended = found_in(2, 3, (4, SLOWER), (3, SLOWER[:3]), (1, EQUAL[:3]))

    assert ended.state is BisectionState.NARROWED
    assert exit_status(ended) == 1
    assert ended.answer is not None
    assert (ended.answer.first, ended.answer.last) == (REFS[2], REFS[3])
    text = "\n".join(sentences(SERIES, ended))
    assert all(ref.sha in text for ref in REFS[2:4])


@pytest.mark.parametrize(
    ("pairs", "state", "note"),
    [
        (EQUAL, BisectionState.NO_CHANGE, "the ends do not differ by 1.0%"),
        (
            tuple(30 * each for each in EQUAL),
            BisectionState.UNDECIDED,
            "unclear whether the ends differ",
        ),
    ],
)
def test_without_a_difference_of_the_ends_no_commit_is_named(
    pairs: tuple[float, ...], state: BisectionState, note: str
) -> None:
    ended = result_of(progress_of((4, pairs), has_inputs=False), SearchEnd(state), 0.01)

    assert (ended.state, ended.answer, exit_status(ended)) == (state, None, 1)
    assert note in ended.notes[0]


def test_a_commit_at_neither_level_is_noted() -> None:
    halfway = tuple(each / 2 for each in SLOWER)

    ended = found_in(2, 3, (4, SLOWER), (3, SLOWER), (1, halfway))

    assert "several commits changed the time" in ended.notes[0]


COMMIT_RANGE = BisectionRange(PROJECT, SERIES, None, sha_of(0), sha_of(4))


@pytest.fixture
def stored(store: Engine) -> StoredBisection:
    claim = begin_bisection(store, COMMIT_RANGE, uuid4(), requested_by="command line")
    return StoredBisection(store.url.render_as_string(hide_password=False), claim)


def test_secrets_in_errors_are_not_stored(
    store: Engine, stored: StoredBisection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "q8Zr2kP0vL6tXw4m")
    broken = replace(PROGRESS.commits[1], reason="KeyError: q8Zr2kP0vL6tXw4m")

    stored.update(
        BisectionResult(BisectionState.RUNNING, BisectionProgress((broken, *PROGRESS.commits[2:])))
    )

    reason = only(store).progress.commits[0].reason
    assert reason.startswith("KeyError: ")
    assert "q8Zr2kP0vL6tXw4m" not in reason


def test_a_lost_database_does_not_stop_measuring(
    stored: StoredBisection, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = replace(stored, url="postgresql://nobody@127.0.0.1:1/gone")

    stored.update(RUNNING)

    assert "the bisection continues without it" in capsys.readouterr().err


def test_a_lost_claim_ends_the_bisection(store: Engine, stored: StoredBisection) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE bisection SET claim_id = gen_random_uuid()"))

    with pytest.raises(ClaimLostError):
        stored.update(RUNNING)

    assert only(store).state is BisectionState.RUNNING
