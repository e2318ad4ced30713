"""`roofwatch calibrate`, its noise floor in the next comparison,
and blocks added where undecided.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.runs.run_plan import Activity
from roofwatch.measurement.run import AdaptiveBlocks, is_undecided, needs_more
from roofwatch.model.measurement import Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.worker_protocol import Subject
from tests.ci.values import QUIET, make_records, make_timed
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import SUITES, roofwatch

SUITE = SUITES / "bench_good.py"
BRIEFLY = ("-k", "scale", "--device", "cpu", "--blocks", "3", "--budget", "0")


@pytest.mark.slow
def test_a_calibrated_noise_floor_applies_to_the_next_comparison(tmp_path: Path) -> None:
    done = roofwatch("calibrate", SUITE, *BRIEFLY, "-o", tmp_path, "--json")

    assert done.status == 0, done.error
    floor = tmp_path / "noise_floor.json"
    assert floor.read_text() == done.output
    assert done.parsed["preset"] == "survey"
    (case,) = done.parsed["cases"]
    assert (case["case_id"], case["implementation"], case["block_count"]) == (
        "scale/n=1000/float32/fwd",
        "torch",
        3,
    )
    base, head = (RunRecord.read(file) for file in sorted(tmp_path.glob("*.json.gz")))
    assert base.commit.sha == head.commit.sha
    assert base.pairing is not None
    assert head.pairing is not None
    assert base.pairing.pair_id == head.pairing.pair_id
    assert (base.preset, head.preset) == ("survey", "survey")

    files = sorted(tmp_path.glob("*.json.gz"))
    compared = roofwatch("compare", *files, "--noise-floor", floor, "--json")

    judged = compared.parsed["judgement"]["cases"][0]
    threshold = judged["evidence"]["comparison"]["threshold"]
    assert threshold == max(0.03, 3 * case["noise_floor"])

    otherwise = roofwatch(
        "ab", SUITE, "--base", "HEAD", "--preset", "gate", "--noise-floor", floor, "-o", tmp_path
    )

    assert otherwise.status == 2, "before anything is measured"
    assert (
        f"{floor}: the noise floor was sampled with --preset survey, the record with"
        in otherwise.error
    )


def test_an_invalid_noise_floor_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")

    done = roofwatch("ab", SUITE, "--base", "HEAD", "--noise-floor", wrong, "-o", tmp_path)

    assert done.status == 2
    assert f"{wrong}: not a noise floor from roofwatch calibrate" in done.error


DECIDED, NEAR, FAR = (
    "rms_norm/n=1/float32/fwd",
    "rms_norm/n=2/float32/fwd",
    "rms_norm/n=3/float32/fwd",
)
EIGHT_QUIET = (*QUIET, 0.998, 1.003)
EIGHT_NOISY = (1.0, 1.02, 0.97, 1.01, 0.985, 1.015, 0.99, 1.012)
EIGHT_LOUD = (1.0, 1.1, 0.85, 1.05, 0.92, 1.08, 0.95, 1.06)


def make_analysed() -> tuple[RunRecord, RunRecord]:
    """A decided case, one of moderate and one of high noise;
    eight blocks of a second on each side.
    """
    levels = {DECIDED: EIGHT_QUIET, NEAR: EIGHT_NOISY, FAR: EIGHT_LOUD}
    base = [make_timed(case_id, levels=each) for case_id, each in levels.items()]
    head = [make_timed(case_id, levels=each[::-1]) for case_id, each in levels.items()]
    spent_ns = {str(Activity.TIMING): 24 * 10**9, str(Activity.CHECK): 10**12}
    return make_records(
        base, head, base_fields={"spent_ns": spent_ns}, head_fields={"spent_ns": spent_ns}
    )


def clock_of(times_s: Sequence[float]) -> Callable[[], float]:
    left: Iterator[float] = iter(times_s)
    return lambda: next(left)


def asked(
    records: tuple[RunRecord, RunRecord], *, budget_s: float
) -> tuple[dict[Subject, int], str]:
    lines: list[str] = []
    more = AdaptiveBlocks(
        judge_pull_request, is_undecided, budget_s, lines.append, clock_of((0.0, 0.0))
    )
    return dict(more(*records)), lines[0]


def test_only_undecided_cases_get_more_blocks() -> None:
    block_counts, line = asked(make_analysed(), budget_s=1_000)

    assert block_counts == {Subject(NEAR, "torch"): 12, Subject(FAR, "torch"): 12}
    assert line == "1 of 3 decided, 2 open, 2 of them get more blocks; 1000 s left"


def test_with_little_time_left_cases_close_to_a_verdict_come_first() -> None:
    # four more blocks on each of two sides, at a second each
    block_counts, line = asked(make_analysed(), budget_s=8.5)

    assert block_counts == {Subject(NEAR, "torch"): 12}
    assert line == "1 of 3 decided, 2 open, 1 of them get more blocks; 8 s left"


def test_edited_code_gets_more_blocks_first() -> None:
    other = "softmax/n=1/float32/fwd"
    rows = [
        (other, "triton", EIGHT_NOISY),
        (NEAR, "torch", EIGHT_NOISY),
        (NEAR, "triton", EIGHT_LOUD),
    ]
    base = [make_timed(case_id, implementation=name, levels=each) for case_id, name, each in rows]
    head = [
        make_timed(case_id, implementation=name, levels=each[::-1]) for case_id, name, each in rows
    ]
    spent_ns = {str(Activity.TIMING): 24 * 10**9}
    records = make_records(
        base,
        head,
        base_fields={"spent_ns": spent_ns, "source_digests": {"rms_norm": "a", "softmax": "s"}},
        head_fields={"spent_ns": spent_ns, "source_digests": {"rms_norm": "b", "softmax": "s"}},
    )

    wanted, _ = asked(records, budget_s=1_000)

    assert list(wanted) == [
        Subject(NEAR, "triton"),
        Subject(NEAR, "torch"),
        Subject(other, "triton"),
    ]


def test_the_budget_starts_with_the_first_analysis() -> None:
    lines: list[str] = []
    clock = clock_of([5_000.0, 5_000.0, 5_099.0])
    more = AdaptiveBlocks(judge_pull_request, is_undecided, 100, lines.append, clock)
    records = make_analysed()

    first, second = dict(more(*records)), dict(more(*records))

    assert first
    assert second == {}
    assert lines[1].endswith("1 s left, not enough for another block")


def looked_at(base: list[Measurement], head: list[Measurement]) -> tuple[RunRecord, RunRecord]:
    """Both sides after 32 s of timing."""
    fields = {"spent_ns": {str(Activity.TIMING): 32 * 10**9}}
    return make_records(base, head, base_fields=fields, head_fields=fields)


def more_blocks(records: tuple[RunRecord, RunRecord], budget_s: float) -> dict[Subject, int]:
    ask = AdaptiveBlocks(
        judge_pull_request, needs_more, budget_s, lambda _: None, clock_of((0.0, 0.0))
    )
    return dict(ask(*records))


@pytest.fixture(scope="module")
def first_look() -> tuple[RunRecord, RunRecord]:
    """One case is slower, the other undecided."""
    base = [make_timed(DECIDED, levels=EIGHT_QUIET), make_timed(NEAR, levels=EIGHT_NOISY)]
    slower = make_timed(DECIDED, median_ns=1.4e6, levels=EIGHT_QUIET[::-1])
    return looked_at(base, [slower, make_timed(NEAR, levels=EIGHT_NOISY[::-1])])


def test_a_change_is_confirmed_before_others_are_decided(
    first_look: tuple[RunRecord, RunRecord],
) -> None:
    confirmed = {Subject(DECIDED, "torch"): 12}

    assert more_blocks(first_look, budget_s=17.0) == confirmed
    assert more_blocks(first_look, budget_s=1_000.0) == {**confirmed, Subject(NEAR, "torch"): 12}


def test_a_change_is_confirmed_once() -> None:
    twelve = (*EIGHT_QUIET, *EIGHT_QUIET[:4])
    second_look = looked_at(
        [make_timed(DECIDED, levels=twelve)],
        [make_timed(DECIDED, median_ns=1.4e6, levels=twelve[::-1])],
    )

    assert more_blocks(second_look, budget_s=1_000.0) == {}


# --- what is told before anything is measured


def test_equal_sources_are_told_at_once(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "kernels")
    suite = repository / "bench_scale.py"
    suite.write_text(SUITE.read_text())
    commit_all(repository)
    (repository / "README.md").write_text("No kernel reads this.\n")

    done = roofwatch("ab", suite, "--base", "HEAD", "--json", cwd=repository)

    assert done.status == 0
    assert done.parsed["judgement"] is None
    assert "the work tree has the same source as HEAD" in done.error
    assert "roofwatch calibrate" in done.error


def test_a_repository_without_a_commit_is_told_to_make_one(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "kernels")
    suite = repository / "bench_scale.py"
    suite.write_text(SUITE.read_text())

    done = roofwatch("ab", suite, "--base", "HEAD", cwd=repository)

    assert done.status == 2
    assert "nothing is committed yet: git add --all && git commit" in done.error
