"""Judge a candidate kernel: `roofwatch submit`."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import torch

from roofwatch.ci.ab.compare import ERROR_RATE
from roofwatch.ci.ab.submission import (
    CONFIRMATION_ERROR_RATE,
    MAX_CONFIRMATIONS,
    SubmissionVerdict,
    TimeVerdict,
)
from roofwatch.collector.accuracy.trial import Bench, ImplementationLateError
from roofwatch.collector.accuracy.variations import (
    Test,
    Trial,
)
from roofwatch.collector.build.provenance import ProjectFiles, require_own_code
from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.deadline import interrupted_at
from roofwatch.collector.git import run_git
from roofwatch.collector.suite import load_suite
from roofwatch.collector.timing.memory import keep_freed_memory
from roofwatch.collector.workers.candidate_protocol import CandidateError
from roofwatch.configuration.arguments import repository_of
from roofwatch.measurement.load import BUSY_LOAD, load_per_processor
from roofwatch.measurement.submission_checks import MAX_TIMED, check_candidate, rejection
from roofwatch.measurement.submission_timing import (
    CONFIRM_UNTIL,
    SCREEN_UNTIL,
    UNDECIDED,
    measure_blocks,
    place_under_roof,
)
from roofwatch.measurement.submissions import Request, Result, append, confirmations
from roofwatch.measurement.submitted import BudgetSpent, Rejected, Stage, Submission
from roofwatch.model.errors import CollectorError, SuiteError
from roofwatch.spec import Case, KernelSpec


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
    if result.verdict in UNDECIDED and load > BUSY_LOAD:
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
        submission.enter(Stage.CHECKING)
        trials = check_candidate(submission, bench, cases)
        if submission.device != "cpu":
            _, arguments, _ = bench.call_base(trials[0])
            submission.result.kernels = list(
                bench.call_candidate(arguments, is_recorded=True).kernels
            )
        if submission.is_interpreted:
            raise Rejected(
                SubmissionVerdict.UNCONFIRMED, "right in Triton's interpreter; its time needs a GPU"
            )
        submission.enter(Stage.TIMING)
        timed = [
            trial
            for trial in trials
            if trial.test is Test.LISTED and trial.case in cases[-MAX_TIMED:]
        ]
        screened, _ = measure_blocks(
            submission=submission,
            bench=bench,
            trials=timed,
            rate=ERROR_RATE,
            until=SCREEN_UNTIL,
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
    submission.enter(Stage.CONFIRMING)
    budget["error_rate_spent"] = CONFIRMATION_ERROR_RATE
    budget["submissions_left"] -= 1
    submission.result.effect = None  # the screening's is the best of many, by the winner's curse
    with _processes(submission, cases) as bench:
        confirmed, blocks = measure_blocks(
            submission=submission,
            bench=bench,
            trials=trials,
            rate=CONFIRMATION_ERROR_RATE,
            until=CONFIRM_UNTIL,
        )
    place_under_roof(
        submission, trials[0].case, statistics.median(block[0].candidate_ns for block in blocks)
    )
    return confirmed


@contextmanager
def _processes(submission: Submission, cases: Sequence[Case]) -> Iterator[Bench]:
    """Start both processes, and turn what the candidate does wrong, and the end of the budget, into
    a verdict.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-submit-")))
        folder.chmod(0o711)  # the sandbox may run as another user
        ends_at_s = submission.began_s + submission.request.budget_s
        try:
            # ends before the processes do, so that ending them is not interrupted
            with interrupted_at(ends_at_s, BudgetSpent):
                yield from _judging(submission, cases, stack, folder)
        except BudgetSpent:
            raise submission.out_of_budget() from None
        except ImplementationLateError as error:
            raise submission.out_of_budget(str(error)) from None


def _judging(
    submission: Submission,
    cases: Sequence[Case],
    stack: ExitStack,
    folder: Path,
) -> Iterator[Bench]:
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
        raise rejection(submission, bench, [(bench.trial, error)]) from None
    finally:
        submission.result.checks["calls"] += bench.call_count
        submission.result.checks["verified"] += bench.checked_count
