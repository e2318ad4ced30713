"""Attacks and honest candidates of tests/data/submit, judged for real.

A few of them by default. Set SUBMIT_EVERY_CANDIDATE=20 to submit each of them so often.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from roofwatch.ci.ab.submission import MAX_CONFIRMATIONS, SubmissionVerdict
from roofwatch.measurement.submissions import Request, Result, entries
from roofwatch.measurement.submit import submit
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import roofwatch

CANDIDATES = Path(__file__).parents[2] / "data" / "submit"
SPEC = "bench_candidates.py"
INCORRECT, INVALID = SubmissionVerdict.INCORRECT, SubmissionVerdict.INVALID
ATTACKS = {
    "answers_twice": INVALID,
    "cache_by_shape": INCORRECT,
    "exits": INCORRECT,
    "fixes_a_number": INCORRECT,
    "forges_answer": INVALID,
    "low_precision": INCORRECT,
    "only_listed_shapes": INCORRECT,
    "replaces_runner": INCORRECT,
    "resumed_by_timer": INVALID,
    "right_at_first": INCORRECT,
    "thread_after_return": INCORRECT,
    "wrong_on_the_timed_shape": INCORRECT,
}
KERNELS = {
    "half_softmax": "normalised",
    "in_place": "accumulate",
    "softmax": "normalised",
    "softmax_without_maximum": "normalised",
    "topk": "chosen",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", str(tmp_path / "data"))
    folder = make_repository(tmp_path / "repository")
    shutil.copy(CANDIDATES / SPEC, folder)
    commit_all(folder)
    return folder


def request(
    repository: Path, name: str, *, kernel: str = "centred", budget_s: float = 50.0
) -> Request:
    candidate = repository / "candidate.py"
    shutil.copyfile(CANDIDATES / f"{name}.py", candidate)
    return Request(candidate, repository / SPEC, kernel=kernel, budget_s=budget_s)


def submit_with_changed_spec(repository: Path) -> Result:
    (repository / SPEC).write_text((repository / SPEC).read_text() + "centred.tolerances = None\n")
    return submit(request(repository, "honest_faster"))


def test_a_changed_spec_is_invalid(repository: Path) -> None:
    result = submit_with_changed_spec(repository)

    assert result.verdict is INVALID
    assert [found["case"] for found in result.evidence] == [SPEC]
    assert result.budget["submissions_left"] == MAX_CONFIRMATIONS


def test_the_ledger_keeps_an_invalid_submission(repository: Path) -> None:
    submit_with_changed_spec(repository)

    assert [(entry["verdict"], entry["error_rate"]) for entry in entries()] == [("invalid", 0.0)]


def test_a_second_submission_names_its_parent(repository: Path) -> None:
    (repository / SPEC).write_text((repository / SPEC).read_text() + "# changed\n")
    for name in ("honest_faster", "honest_same"):
        submit(request(repository, name))

    first, second = entries()

    assert first["parent"] is None
    assert second["parent"] == first["hash"] != second["hash"]


def test_an_unknown_kernel_is_an_error_that_lists_the_known_ones(repository: Path) -> None:
    shutil.copyfile(CANDIDATES / "honest_faster.py", repository / "candidate.py")
    done = roofwatch(
        "submit", "candidate.py", "--spec", SPEC, "--kernel", "centered", cwd=repository
    )

    assert done.status == 2
    assert "centred, accumulate, normalised, chosen" in done.error


def chosen(kind: str, usual: Iterable[str]) -> list[str]:
    """Names of the candidates to submit."""
    repeats = int(os.environ.get("SUBMIT_EVERY_CANDIDATE", 0))
    every = sorted(file.stem.removeprefix(f"{kind}_") for file in CANDIDATES.glob(f"{kind}_*.py"))
    return every * repeats if repeats else list(usual)


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen("attack", ATTACKS))
def test_an_attack_is_rejected(repository: Path, name: str) -> None:
    result = submit(request(repository, f"attack_{name}", kernel=KERNELS.get(name, "centred")))

    assert result.verdict is not SubmissionVerdict.FASTER
    assert result.verdict is ATTACKS.get(name, result.verdict), result.reason
    assert all(found["message"] and found["repeat"] for found in result.evidence)


@pytest.mark.slow
def test_a_store_past_the_end_is_located(repository: Path) -> None:
    result = submit(request(repository, "one_element_too_far", budget_s=400.0))

    assert result.verdict is INCORRECT, result.reason
    assert "wrote past the end of `y_ptr`" in result.reason
    assert "candidate.py:15" in result.reason


@pytest.mark.slow
def test_a_hang_costs_the_budget_and_nothing_else(repository: Path) -> None:
    result = submit(request(repository, "attack_hangs", budget_s=30.0))

    assert result.verdict.exit_status == 2, result.reason
    # a machine that is too busy to start the processes in time learns nothing about the candidate
    if result.checks["calls"]:
        assert result.verdict is SubmissionVerdict.ERROR
        assert "timed out" in result.reason


@pytest.mark.slow
def test_a_reference_that_takes_for_ever_costs_the_budget(repository: Path) -> None:
    spec = repository / "bench_slow.py"
    spec.write_text(
        "import time\nfrom roofwatch import KernelSpec, cases\n\n"
        "def reference(x):\n    time.sleep(1e6)\n    return x\n\n"
        "slow = KernelSpec(\n    name='slow', reference=reference,\n"
        "    inputs=lambda case, make: {'x': make.normal(case['n'])},\n"
        "    cases=cases(shapes=[{'n': 8}], directions=['fwd']),\n"
        "    flop_count=lambda case: 1, memory_bytes=lambda case: 1,\n)\n\n"
        "@slow.implementation('torch')\ndef same(x):\n    return x.clone()\n"
    )
    commit_all(repository)
    (repository / "candidate.py").write_text("def candidate(x):\n    return x.clone()\n")

    result = submit(Request(repository / "candidate.py", spec, budget_s=25.0))

    assert result.verdict is SubmissionVerdict.INCONCLUSIVE
    assert "the budget of 25 s ended while" in result.reason
    assert "whether it is right, and faster, is open" in result.reason
    assert "--budget" in result.reason


@pytest.mark.slow
def test_forks_up_to_the_limit_are_an_error_that_says_so(repository: Path) -> None:
    result = submit(request(repository, "attack_forks_until_refused"))

    # a machine that is too busy to start the processes in time learns nothing about the candidate
    if result.checks["calls"]:
        assert result.verdict is SubmissionVerdict.ERROR, result.reason
        assert "processes" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen("honest", ("faster", "slower", "in_place")))
def test_an_honest_candidate_is_not_rejected(repository: Path, name: str) -> None:
    kernel = KERNELS.get(name, "centred")
    candidate = request(repository, f"honest_{name}", kernel=kernel).candidate
    arguments = ("--spec", SPEC, "--kernel", kernel, "--json")
    done = roofwatch("submit", candidate, *arguments, cwd=repository)

    judged = done.parsed
    assert judged["verdict"] not in {"incorrect", "invalid", "error"}, judged["reason"]
    assert done.status == SubmissionVerdict(judged["verdict"]).exit_status
    if judged["verdict"] != "inconclusive":  # a noisy machine may need more time than this
        assert (
            judged["effect"]["interval"][0]
            <= judged["effect"]["ratio"]
            <= judged["effect"]["interval"][1]
        )
    assert judged["checks"]["verified"] > 0
    assert not (name == "slower" and judged["verdict"] == "faster")
