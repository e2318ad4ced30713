"""Judge a candidate kernel: `roofwatch submit`."""

import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from roofwatch.arguments import repository_of
from roofwatch.ci.ab.compare import ERROR_RATE, FIRST_LOOK_BLOCKS, looks_after
from roofwatch.ci.submission import (
    CONFIRMATION_ERROR_RATE,
    MAX_CONFIRMATIONS,
    CaseTimes,
    SubmissionVerdict,
    TimeVerdict,
    judge_times,
)
from roofwatch.collector.accuracy.evaluation import make_inputs
from roofwatch.collector.accuracy.trial import Bench, NotComparableError
from roofwatch.collector.accuracy.variations import (
    Test,
    Trial,
    other_layouts,
    other_values,
    unseen_shapes,
)
from roofwatch.collector.build.provenance import ProjectFiles, require_own_code
from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.roofline import INVALID_ABOVE, roof_of
from roofwatch.collector.git import run_git
from roofwatch.collector.jobs.kernel_info import case_record
from roofwatch.collector.suite import load_suite
from roofwatch.collector.timing.memory import keep_freed_memory
from roofwatch.collector.workers.candidate_protocol import (
    CandidateError,
    CandidateGoneError,
    CandidateLateError,
    ForgeryError,
    TooManyProcessesError,
)
from roofwatch.measurement.load import BUSY_LOAD, load_per_processor
from roofwatch.measurement.submissions import Request, Result, append, confirmations
from roofwatch.measurement.submitted import MAX_LISTED, Rejected, Submission
from roofwatch.model.errors import CollectorError, SuiteError
from roofwatch.model.metrics import format_ns
from roofwatch.model.timing_method import default_method
from roofwatch.spec import Case, KernelSpec

_MAX_TIMED = 3
_MAX_UNSEEN = 6
_MAX_FAILURES = 5
_ROUNDS = 3
"""Pairs of pairs of calls of a case in a block."""
_CHECK_UNTIL = 0.7
_SCREEN_UNTIL = 0.7
_CONFIRM_UNTIL = 0.85
"""Shares of the budget. Checks on a busy machine may use the time of the screening too."""
_OPEN = frozenset({SubmissionVerdict.INCONCLUSIVE, SubmissionVerdict.UNCONFIRMED})
"""Verdicts that more time, or an idle machine, may decide."""
_HANG_RATIO = 100
"""A candidate that takes so many times as long as the implementation hangs."""


def submit(request: Request, on_status: Callable[[str], None] = lambda _text: None) -> Result:
    """Judge a candidate and add the verdict to the ledger.

    Raises:
        CollectorError: the spec or the candidate cannot be read, or the machine cannot isolate it.
    """
    if not request.candidate.is_file():
        raise CollectorError(f"{request.candidate}: no such file")
    keep_freed_memory()  # comparing large results takes three times as long otherwise
    with suite_at_revision(request.spec, request.revision) as suite:
        preloaded = frozenset(sys.modules)
        kernel = _find_kernel(load_suite(suite.source), request)
        require_own_code(suite.source, ProjectFiles(suite.source, preloaded).take_new())
        submission = Submission(
            request=request,
            suite=suite,
            spec=kernel,
            on_status=on_status,
        )
        if submission.device == "cpu":
            torch.set_num_threads(1)
        result = submission.result
        try:
            _refuse_other_changes(submission)
            timed = _run(submission)
            result.verdict, result.reason = timed.verdict, timed.reason
        except Rejected as rejected:
            result.verdict, result.reason = rejected.verdict, str(rejected)
            result.evidence += rejected.evidence
        except CollectorError as error:  # of the spec or of the machine
            result.verdict, result.reason = SubmissionVerdict.ERROR, str(error)
    result.budget["seconds_spent"] = round(time.monotonic() - submission.began_s, 1)
    load = load_per_processor()
    result.budget["load_per_processor"] = round(load, 2)
    if result.verdict in _OPEN and load > BUSY_LOAD:
        result.reason += (
            f"; the machine was busy (load {load:.1f} per processor): submit again on an idle one"
        )
    append(result, request, submitted_at=datetime.now(UTC))
    return result


def _find_kernel(specs: Sequence[KernelSpec], request: Request) -> KernelSpec:
    names = ", ".join(spec.name for spec in specs)
    if request.kernel is None and len(specs) > 1:
        raise SuiteError(f"{request.spec} declares {names}; choose one with --kernel")
    selected = [spec for spec in specs if request.kernel in {None, spec.name}]
    if not selected:
        raise SuiteError(f"{request.spec} declares no kernel {request.kernel!r}, but {names}")
    spec = selected[0]
    if spec.rank_dimension is not None:
        raise SuiteError(
            f"{spec.name} runs on several ranks, which submit does not support; use ab"
        )
    if request.against is not None and request.against not in spec.implementations:
        raise SuiteError(
            f"{spec.name} has no implementation {request.against!r}, but "
            f"{', '.join(spec.implementations)}"
        )
    return spec


# --- stages


def _refuse_other_changes(submission: Submission) -> None:
    repository = repository_of(submission.request.spec)
    changed = run_git(
        repository, "diff", "--name-only", "-z", submission.suite.commit.sha, "--"
    ).split("\0")
    candidate = submission.request.candidate.resolve()
    others = [name for name in changed if name and (repository / name).resolve() != candidate]
    if others:
        listed = ", ".join(others[:5])
        evidence = [
            submission.evidence("changed files", name, "differs from the revision")
            for name in others[:20]
        ]
        raise Rejected(
            SubmissionVerdict.INVALID,
            f"the work tree changes other files than the candidate: {listed}; commit or stash them",
            evidence,
        )


def _run(submission: Submission) -> TimeVerdict:
    cases = [submission.fit(case) for case in submission.chosen_cases()]
    with _processes(submission, cases) as bench:
        submission.on_status("checking results")
        trials = _check(submission, bench, cases)
        if submission.device != "cpu":
            _, arguments, _ = bench.call_base(trials[0])
            submission.result.kernels = list(
                bench.call_candidate(arguments, is_recorded=True).kernels
            )
        if submission.is_interpreted:
            raise Rejected(
                SubmissionVerdict.UNCONFIRMED, "right in Triton's interpreter; its time needs a GPU"
            )
        submission.on_status("timing")
        timed = [
            trial
            for trial in trials
            if trial.test is Test.LISTED and trial.case in cases[-_MAX_TIMED:]
        ]
        screened, _ = _measure(
            submission=submission,
            bench=bench,
            trials=timed,
            rate=ERROR_RATE,
            until=_SCREEN_UNTIL,
        )
    unseen = [trial for trial in trials if trial.test is Test.SHAPE][:1]
    if screened.verdict is not SubmissionVerdict.FASTER:
        return screened
    if not unseen:
        reason = "faster on the listed cases, but no unseen shape could be tried"
        return TimeVerdict(SubmissionVerdict.UNCONFIRMED, reason, screened.effect)
    return _confirm(submission, cases, [*timed, *unseen])


def _confirm(submission: Submission, cases: Sequence[Case], trials: Sequence[Trial]) -> TimeVerdict:
    """Measure again in new processes, with a stricter error rate; the screening has chosen the
    candidate.
    """
    budget = submission.result.budget
    if confirmations(submission.result.target) >= MAX_CONFIRMATIONS:
        raise Rejected(
            SubmissionVerdict.UNCONFIRMED,
            f"{MAX_CONFIRMATIONS} submissions of this spec were confirmed before, which spends "
            f"the error rate; "
            "commit a new version of the spec",
        )
    submission.on_status("confirming")
    budget["error_rate_spent"] = CONFIRMATION_ERROR_RATE
    budget["submissions_left"] -= 1
    submission.result.effect = None  # the screening's is the best of many, by the winner's curse
    with _processes(submission, cases) as bench:
        confirmed, blocks = _measure(
            submission=submission,
            bench=bench,
            trials=trials,
            rate=CONFIRMATION_ERROR_RATE,
            until=_CONFIRM_UNTIL,
        )
    _place_under_roof(
        submission, trials[0].case, statistics.median(block[0].candidate_ns for block in blocks)
    )
    return confirmed


@contextmanager
def _processes(submission: Submission, cases: Sequence[Case]) -> Iterator[Bench]:
    """Start both processes, and turn what the candidate does wrong into a verdict."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-submit-")))
        folder.chmod(0o711)  # the sandbox may run as another user
        submission.on_status("starting")
        base, candidate = submission.start(stack, folder, cases)
        bench = Bench(
            spec=submission.spec,
            device=submission.device,
            base=base,
            candidate=candidate,
            against=submission.result.spec["against"],
            timeout_s=submission.call_timeout_s,
        )
        try:
            bench.against = submission.result.spec["against"] = bench.against or submission.fastest(
                bench, cases
            )
            yield bench
        except CandidateError as error:
            raise _rejection(submission, bench, [(bench.trial, error)]) from None
        finally:
            submission.result.checks["calls"] += bench.call_count
            submission.result.checks["verified"] += bench.checked_count


def _check(submission: Submission, bench: Bench, cases: Sequence[Case]) -> list[Trial]:
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
        varied = cases[-_MAX_TIMED:]
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
    passed: list[Trial] = []
    failures: list[tuple[Trial, CandidateError]] = []
    not_comparable = ""
    for trial in trials:
        if submission.left_s(_CHECK_UNTIL) <= 0 and not failures:
            raise Rejected(
                SubmissionVerdict.INCONCLUSIVE, "the budget ended before all checks; raise --budget"
            )
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
            if is_over or submission.left_s(_CHECK_UNTIL) <= 0:
                break
    if failures:
        raise _rejection(submission, bench, failures)
    if set(passed).isdisjoint(listed):
        raise CollectorError(f"the spec gives no right result on any listed case: {not_comparable}")
    timeable = [trial for trial in passed if trial in listed or trial.test is Test.SHAPE]
    return sorted(
        timeable,
        key=lambda trial: submission.spec.memory_bytes(trial.case),
        reverse=True,
    )


def _measure(
    submission: Submission,
    bench: Bench,
    trials: Sequence[Trial],
    rate: float,
    until: float,
) -> tuple[TimeVerdict, list[list[CaseTimes]]]:
    """Add blocks up to the next interim analysis until the verdict is clear or the time is up."""
    submission.result.cases = [trial.case.id for trial in trials]
    for trial in trials:  # a warm-up
        bench.check(bench.time_once(trial, is_base_first=True))
    blocks: list[list[CaseTimes]] = []
    next_look = FIRST_LOOK_BLOCKS
    while True:
        while len(blocks) < next_look and (
            len(blocks) < FIRST_LOOK_BLOCKS or submission.left_s(until) > 0
        ):
            if submission.left_s(_CONFIRM_UNTIL) <= 0:
                raise Rejected(
                    SubmissionVerdict.INCONCLUSIVE, "the budget is spent; raise --budget"
                )
            blocks.append(_block(bench, trials))
        judged = judge_times(blocks, rate=rate)
        submission.result.effect = asdict(judged.effect)
        # on a busy machine an exchange takes longer, and more blocks may see it shorter
        goes_on = judged.verdict is SubmissionVerdict.INCONCLUSIVE or (
            judged.verdict in _OPEN and load_per_processor() > BUSY_LOAD
        )
        if not goes_on or submission.left_s(until) <= 0:
            return judged, blocks
        next_look = next(looks_after(len(blocks)))


def _block(bench: Bench, trials: Sequence[Trial]) -> list[CaseTimes]:
    """Call both sides in turn on each case, and return the medians by case."""
    random = secrets.SystemRandom()
    pairs = [
        bench.time_once(trial, is_base_first=is_base_first)
        for trial in random.sample(trials, len(trials))
        for is_base_first in random.sample((True, False) * _ROUNDS, 2 * _ROUNDS)
    ]
    # chosen when all outputs have arrived
    bench.check(random.choice(pairs))
    times = []
    for trial in trials:
        of_case = [pair for pair in pairs if pair.case == trial.case]
        times.append(
            CaseTimes(
                statistics.median(pair.base.elapsed_ns for pair in of_case),
                statistics.median(pair.candidate.elapsed_ns for pair in of_case),
                statistics.median(bench.exchange_ns(pair) for pair in of_case),
            )
        )
    return times


# --- parts of the result


def _place_under_roof(submission: Submission, case: Case, median_ns: float) -> None:
    """Add the candidate's position under the roof.

    Raises:
        Rejected: it is faster than the hardware allows.
    """
    timer = default_method(submission.device).timer
    ceilings = list(measure_ceilings(submission.device, [case.dtype], timer))
    roof = roof_of(case_record(submission.spec, case), ceilings)
    if roof.ideal_ns is None:
        return
    excess = roof.least_ns / median_ns
    shares = {
        "bound": roof.bound,
        "ideal_ns": roof.ideal_ns,
        "utilisation": roof.ideal_ns / median_ns,
    }
    submission.result.roofline = {
        "case": case.id,
        "median_ns": median_ns,
        **shares,
        "excess": excess,
    }
    device_kind = "cpu" if submission.device == "cpu" else "cuda"
    if excess > INVALID_ABOVE[device_kind]:
        reason = (
            f"takes {median_ns / 1e3:.0f} us, {excess:.1f} times as fast as the hardware allows"
        )
        raise Rejected(
            SubmissionVerdict.INVALID, reason, [submission.evidence("roofline", case.id, reason)]
        )


def _rejection(
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
