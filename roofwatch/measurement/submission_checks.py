"""Try a submitted candidate on listed and unseen inputs, and say why it is rejected."""

import secrets
from collections.abc import Sequence

from roofwatch.ci.ab.submission import SubmissionVerdict
from roofwatch.collector.accuracy.evaluation import make_inputs
from roofwatch.collector.accuracy.trial import Bench, ImplementationLateError, NotComparableError
from roofwatch.collector.accuracy.variations import (
    Test,
    Trial,
    other_layouts,
    other_values,
    unseen_shapes,
)
from roofwatch.collector.workers.candidate_protocol import (
    CandidateError,
    CandidateGoneError,
    CandidateLateError,
    ForgeryError,
    TooManyProcessesError,
)
from roofwatch.measurement.submitted import (
    CHECK_UNTIL,
    MAX_LISTED,
    BudgetSpent,
    Rejected,
    Submission,
)
from roofwatch.model.errors import CollectorError
from roofwatch.model.metrics import format_ns
from roofwatch.spec import Case

MAX_TIMED = 3
"""Largest listed cases, which are timed."""
_MAX_UNSEEN = 6
_MAX_FAILURES = 5
_HANG_RATIO = 100
"""A candidate that takes so many times as long as the implementation hangs."""


def check_candidate(submission: Submission, bench: Bench, cases: Sequence[Case]) -> list[Trial]:
    """Try the candidate on listed and unseen inputs.

    Returns:
        Listed cases and unseen shapes that both sides support, the largest first.
    """
    random = secrets.SystemRandom()
    listed = [Trial(Test.LISTED, case) for case in cases]
    edges = [Trial(Test.LISTED, submission.fit(case)) for case in submission.spec.edges]
    # the timed ones in all variants, so that none can be treated as a special case
    if submission.is_interpreted:
        varied = cases[:1]
    else:
        varied = cases[-MAX_TIMED:]
    known_case_ids = frozenset(trial.case.id for trial in (*listed, *edges))
    trials = [
        *listed,
        *random.sample(edges, min(MAX_LISTED, len(edges))),
        *unseen_shapes(cases, known_case_ids, count=_MAX_UNSEEN),
        *(trial for case in varied for trial in other_values(case)),
        *other_layouts(
            {case: make_inputs(submission.spec, case, "cpu", only_integers=True) for case in varied}
        ),
    ]
    random.shuffle(trials)
    submission.input_count = len(trials)
    passed: list[Trial] = []
    failures: list[tuple[Trial, CandidateError]] = []
    not_comparable = ""
    for trial in trials:
        if submission.left_s(CHECK_UNTIL) <= 0:
            # what was wrong on another input is known
            if failures:
                break
            raise submission.out_of_budget()
        try:
            if bench.try_once(trial):
                passed.append(trial)
        except NotComparableError as error:
            not_comparable = str(error)
        except CandidateError as error:
            failures.append((trial, error))
            is_over = (
                isinstance(error, (CandidateGoneError, ForgeryError, TooManyProcessesError))
                or len(failures) == _MAX_FAILURES
            )
            if is_over:
                break
        except ImplementationLateError as error:
            if not failures:
                raise submission.out_of_budget(str(error)) from None
            break
        except BudgetSpent:
            if not failures:
                raise
            break
        submission.checked_count += 1
    if failures:
        raise rejection(submission, bench, failures)
    if set(passed).isdisjoint(listed):
        raise CollectorError(f"the spec gives no right result on any listed case: {not_comparable}")
    timeable = [trial for trial in passed if trial in listed or trial.test is Test.SHAPE]
    return sorted(
        timeable,
        key=lambda trial: submission.spec.memory_bytes(trial.case),
        reverse=True,
    )


def rejection(
    submission: Submission,
    bench: Bench,
    failures: Sequence[tuple[Trial, CandidateError]],
) -> Rejected:
    errors = [error for _, error in failures]
    verdict = SubmissionVerdict.INCORRECT
    main = 0
    if isinstance(errors[-1], ForgeryError):
        verdict = SubmissionVerdict.INVALID
        main = -1
    elif isinstance(errors[-1], TooManyProcessesError):
        trial, error = failures[-1]
        evidence = [submission.evidence(trial.test, trial.name, str(error))]
        return Rejected(SubmissionVerdict.ERROR, f"process limit: {trial.name}: {error}", evidence)
    elif isinstance(errors[0], CandidateLateError):
        return _timed_out(submission, bench, failures[0][0], errors[0])
    evidence = [
        submission.evidence(trial.test, trial.name, str(error)) for trial, error in failures
    ]
    return Rejected(verdict, f"{failures[main][0].name}: {errors[main]}", evidence)


def _timed_out(
    submission: Submission,
    bench: Bench,
    trial: Trial,
    error: CandidateLateError,
) -> Rejected:
    """Tell a candidate that hangs, next to the implementation's time, from a budget too short."""
    evidence = [submission.evidence(trial.test, trial.name, str(error))]
    base_s = bench.base_ns / 1e9
    comparison = f"{bench.against} takes {format_ns(bench.base_ns)}"
    if bench.base_ns and error.timeout_s >= _HANG_RATIO * base_s:
        reason = f"timed out: {trial.name}: {error}; {comparison}"
        return Rejected(SubmissionVerdict.ERROR, reason, evidence)
    reason = f"{trial.name}: {error}; {comparison}; raise --budget"
    return Rejected(SubmissionVerdict.INCONCLUSIVE, reason, evidence)
