"""Judge a candidate kernel: `roofwatch submit`."""

import secrets
import statistics
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
    Block,
    SubmissionVerdict,
    TimeVerdict,
    judge_times,
)
from roofwatch.collector.accuracy.evaluation import make_inputs
from roofwatch.collector.accuracy.trial import (
    Bench,
    Failed,
    NotComparableError,
    Pair,
    Test,
    Trial,
    other_layouts,
    other_values,
    unseen_shapes,
)
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.roofline import INVALID_ABOVE, position
from roofwatch.collector.errors import CollectorError, SuiteError
from roofwatch.collector.git import run_git
from roofwatch.collector.suite import SuiteAt, load_suite, suite_at_revision
from roofwatch.collector.timing.method import default_method
from roofwatch.collector.workers.candidate_protocol import CandidateError
from roofwatch.collector.workers.kernel_info import case_record
from roofwatch.measurement.submissions import Request, Result, ledger
from roofwatch.measurement.submitted import MAX_LISTED, Rejected, Submission
from roofwatch.spec import Case, KernelSpec

_MAX_TIMED, _MAX_UNSEEN, _MAX_FAILURES = 3, 6, 5
_ROUNDS = 3
"""Pairs of pairs of calls of a case in a block."""
_EXCHANGES = 31
_CHECK_UNTIL, _SCREEN_UNTIL, _CONFIRM_UNTIL = 0.5, 0.65, 0.85
"""Shares of the budget."""


def submit(request: Request, on_status: Callable[[str], None] = lambda _text: None) -> Result:
    """Judge a candidate and add the verdict to the ledger.

    Args:
        request: What is submitted.
        on_status: Called with what is being done.

    Raises:
        CollectorError: the spec or the candidate cannot be read, or the machine cannot isolate it.
    """
    if not request.candidate.is_file():
        raise CollectorError(f"{request.candidate}: no such file")
    with suite_at_revision(request.spec, request.revision) as suite:
        spec = _find_kernel(load_suite(suite.source), request)
        judge = _Judge(request, suite, spec, on_status)
        result = judge.result()
    ledger().append(result, request, at=datetime.now(UTC))
    return result


def _find_kernel(specs: Sequence[KernelSpec], request: Request) -> KernelSpec:
    names = ", ".join(spec.name for spec in specs)
    if request.kernel is None and len(specs) > 1:
        raise SuiteError(f"{request.spec} declares {names}; choose one with --kernel")
    found = [spec for spec in specs if request.kernel in {None, spec.name}]
    if not found:
        raise SuiteError(f"{request.spec} declares no kernel {request.kernel!r}, but {names}")
    spec = found[0]
    if spec.rank_dimension is not None:
        raise SuiteError(f"{spec.name} runs on several ranks, which submit does not support; use ab")
    if request.against is not None and request.against not in spec.implementations:
        raise SuiteError(
            f"{spec.name} has no implementation {request.against!r}, but {', '.join(spec.implementations)}"
        )
    return spec


class _Judge:
    """One submission."""

    def __init__(self, request: Request, suite: SuiteAt, spec: KernelSpec, on_status: Callable[[str], None]) -> None:
        self._own = Submission(request, suite, spec)
        self._spec, self._result, self._device = spec, self._own.result, self._own.device
        self._on_status = on_status
        self._target = f"{self._result.spec['hash']}:{spec.name}"
        self._spent_rate = 0.0
        self._candidate_ns: dict[str, list[float]] = {}
        if self._device == "cpu":
            torch.set_num_threads(1)

    def result(self) -> Result:
        result = self._result
        try:
            self._refuse_other_changes()
            timed = self._run()
            result.verdict, result.reason = timed.verdict, timed.reason
        except Rejected as rejected:
            result.verdict, result.reason = rejected.verdict, str(rejected)
            result.evidence += rejected.evidence
        except (CollectorError, CandidateError) as error:  # of the spec or of the machine
            result.verdict, result.reason = SubmissionVerdict.ERROR, str(error)
        used = ledger().confirmations(self._target) + (self._spent_rate > 0)
        result.budget = {
            "seconds": self._own.request.budget_s,
            "seconds_spent": round(time.monotonic() - self._own.began_s, 1),
            "error_rate_spent": self._spent_rate,
            "submissions_left": max(0, MAX_CONFIRMATIONS - used),
        }
        return result

    # --- stages

    def _refuse_other_changes(self) -> None:
        repository = repository_of(self._own.request.spec)
        changed = run_git(repository, "diff", "--name-only", "-z", self._own.suite.commit.sha, "--").split("\0")
        own = self._own.request.candidate.resolve()
        others = [name for name in changed if name and (repository / name).resolve() != own]
        if others:
            listed = ", ".join(others[:5])
            raise Rejected(
                SubmissionVerdict.INVALID,
                f"the work tree changes other files than the candidate: {listed}; commit or stash them",
                [self._own.evidence("changed files", name, "differs from the revision") for name in others[:20]],
            )

    def _run(self) -> TimeVerdict:
        cases = self._own.chosen_cases()
        with self._processes(cases) as bench:
            self._on_status("checking results")
            trials = self._check(bench, cases)
            self._describe(bench, trials)
            if self._own.is_interpreted:
                raise Rejected(SubmissionVerdict.UNCONFIRMED, "right in Triton's interpreter; its time needs a GPU")
            self._on_status("timing")
            timed = [trial for trial in trials if trial.test is Test.LISTED][:_MAX_TIMED]
            self._result.cases = [trial.case.id for trial in timed]
            screened = self._measure(bench, timed, ERROR_RATE, _SCREEN_UNTIL)
        unseen = [trial for trial in trials if trial.test is Test.SHAPE][:1]
        if screened.verdict is not SubmissionVerdict.FASTER:
            return screened
        if not unseen:
            reason = "faster on the listed cases, but no unseen shape could be tried"
            return TimeVerdict(SubmissionVerdict.UNCONFIRMED, reason, screened.effect)
        return self._confirm(cases, [*timed, *unseen])

    def _confirm(self, cases: Sequence[Case], trials: Sequence[Trial]) -> TimeVerdict:
        """Measure again in new processes, with a stricter error rate; the screening has chosen the candidate."""
        if ledger().confirmations(self._target) >= MAX_CONFIRMATIONS:
            raise Rejected(
                SubmissionVerdict.UNCONFIRMED,
                f"{MAX_CONFIRMATIONS} submissions of this spec were confirmed before, which spends the error rate; "
                "commit a new version of the spec",
            )
        self._on_status("confirming")
        self._spent_rate = CONFIRMATION_ERROR_RATE
        self._result.effect = None  # the screening's is the best of many, by the winner's curse
        self._result.cases = [trial.case.id for trial in trials]
        self._candidate_ns.clear()
        with self._processes(cases) as bench:
            confirmed = self._measure(bench, trials, CONFIRMATION_ERROR_RATE, _CONFIRM_UNTIL)
        self._place_under_roof(trials[0].case)
        return confirmed

    @contextmanager
    def _processes(self, cases: Sequence[Case]) -> Iterator[Bench]:
        """Start both processes, and turn what the candidate does wrong into a verdict."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-submit-")))
            folder.chmod(0o711)  # the sandbox may run as another user
            self._on_status("starting")
            base, candidate = self._own.start(stack, folder, cases)
            bench = Bench(
                self._spec, self._device, base, candidate, self._result.spec["against"], self._own.call_timeout_s
            )
            try:
                bench.against = bench.against or self._own.fastest(bench, cases)
                self._result.spec["against"] = bench.against
                yield bench
            except Failed as failed:
                raise self._rejection([failed]) from None
            finally:
                self._result.checks["calls"] += bench.call_count
                self._result.checks["verified"] += bench.checked_count

    def _check(self, bench: Bench, cases: Sequence[Case]) -> list[Trial]:
        """Try the candidate on listed and unseen inputs.

        Returns:
            Listed cases and unseen shapes that both sides support, the slowest first.
        """
        random = secrets.SystemRandom()
        listed = [Trial(Test.LISTED, case) for case in cases]
        edges = [Trial(Test.LISTED, self._own.fit(case)) for case in self._spec.edges]
        smallest = min((case for case in cases), key=self._spec.memory_bytes)
        known = frozenset(trial.case.id for trial in (*listed, *edges))
        shapes = list(unseen_shapes([trial.case for trial in listed], known, count=_MAX_UNSEEN))
        rest = [
            *random.sample(edges, min(MAX_LISTED, len(edges))),
            *other_values(smallest),
            *other_layouts(smallest, make_inputs(self._spec, smallest, "cpu", only_integers=True)),
        ]
        # those that a verdict needs come first
        first = [*listed[:1], *shapes[:2]]
        others = [*listed[1:], *shapes[2:], *rest]
        random.shuffle(first)
        random.shuffle(others)
        times: dict[Trial, float] = {}
        failures: list[Failed] = []
        not_comparable = "no listed case was tried"
        for trial in (*first, *others):
            if self._own.left_s(_CHECK_UNTIL) <= 0 and trial not in first:
                break
            try:
                pair = bench.try_once(trial)
            except NotComparableError as error:
                not_comparable = str(error)
                continue
            except Failed as failed:
                failures.append(failed)
                if failed.is_gone or failed.is_forgery or len(failures) == _MAX_FAILURES:
                    break
                continue
            if pair is not None and trial.test in {Test.LISTED, Test.SHAPE}:
                times[trial] = pair.base.elapsed_ns
        if failures:
            raise self._rejection(failures)
        if times.keys().isdisjoint(listed):
            raise CollectorError(f"the spec gives no right result on any listed case: {not_comparable}")
        return sorted((trial for trial in times if trial not in edges), key=lambda trial: times[trial], reverse=True)

    def _measure(self, bench: Bench, trials: Sequence[Trial], rate: float, until: float) -> TimeVerdict:
        """Add blocks up to the next interim analysis until the verdict is clear or the time is up."""
        exchange_ns = statistics.median(bench.base.exchange_ns(self._own.call_timeout_s()) for _ in range(_EXCHANGES))
        for trial in trials:  # a warm-up
            bench.check(bench.time_once(trial, is_base_first=True))
        blocks: list[Block] = []
        next_look = FIRST_LOOK_BLOCKS
        while True:
            while len(blocks) < next_look and (len(blocks) < FIRST_LOOK_BLOCKS or self._own.left_s(until) > 0):
                if self._own.left_s(_CONFIRM_UNTIL) <= 0:
                    raise Rejected(SubmissionVerdict.INCONCLUSIVE, "the budget is spent; raise --budget")
                blocks.append(self._block(bench, trials))
            judged = judge_times(blocks, exchange_ns, rate=rate)
            self._result.effect = asdict(judged.effect)
            if judged.verdict is not SubmissionVerdict.INCONCLUSIVE or self._own.left_s(until) <= 0:
                return judged
            next_look = next(looks_after(len(blocks)))

    def _block(self, bench: Bench, trials: Sequence[Trial]) -> Block:
        """Call both sides in turn on each case; medians of the calls, geometric means over the cases."""
        random = secrets.SystemRandom()
        pairs = [
            bench.time_once(trial, is_base_first=is_base_first)
            for trial in random.sample(trials, len(trials))
            for is_base_first in random.sample((True, False) * _ROUNDS, 2 * _ROUNDS)
        ]
        # chosen when all outputs have arrived
        bench.check(random.choice(pairs))
        bench.settle(pairs[-1].trial)
        medians = [
            [statistics.median(values) for values in zip(*(_times(pair) for pair in own), strict=True)]
            for own in ([pair for pair in pairs if pair.case.id == trial.case.id] for trial in trials)
        ]
        for trial, values in zip(trials, medians, strict=True):
            self._candidate_ns.setdefault(trial.case.id, []).append(values[1])
        return Block(*(statistics.geometric_mean(values) for values in zip(*medians, strict=True)))

    # --- parts of the result

    def _describe(self, bench: Bench, trials: Sequence[Trial]) -> None:
        """Note what one call runs on the GPU."""
        if self._device != "cpu":
            _, arguments, _ = bench.call_base(trials[0])
            self._result.kernels = list(bench.call_candidate(trials[0], arguments, is_recorded=True).kernels)

    def _place_under_roof(self, case: Case) -> None:
        """Add the candidate's position under the roof.

        Raises:
            Rejected: it is faster than the hardware allows.
        """
        timer = default_method(self._device).timer
        record = case_record(self._spec, case)
        median_ns = statistics.median(self._candidate_ns[case.id])
        found = position(record, median_ns, list(measure_ceilings(self._device, [case.dtype], timer)))
        if found is None:
            return
        self._result.roofline = {"case": case.id, "median_ns": median_ns, **asdict(found)}
        if found.excess > INVALID_ABOVE["cpu" if self._device == "cpu" else "cuda"]:
            reason = f"takes {median_ns / 1e3:.0f} us, {found.excess:.1f} times as fast as the hardware allows"
            raise Rejected(SubmissionVerdict.INVALID, reason, [self._own.evidence("roofline", case.id, reason)])

    def _rejection(self, failures: Sequence[Failed]) -> Rejected:
        verdict = SubmissionVerdict.INCORRECT
        if any(failed.is_forgery for failed in failures):
            verdict = SubmissionVerdict.INVALID
        elif all(failed.is_late for failed in failures):
            verdict = SubmissionVerdict.INCONCLUSIVE
        evidence = [self._own.evidence(failed.trial.test, failed.trial.name, str(failed)) for failed in failures]
        first = failures[-1] if failures[-1].is_forgery else failures[0]
        return Rejected(verdict, f"{first.trial.name}: {first}", evidence)


def _times(pair: Pair) -> tuple[float, float, float, float]:
    """In the order of the fields of `Block`."""
    claimed = max(1.0, pair.base.claimed_ns), max(1.0, pair.candidate.claimed_ns)
    return pair.base.elapsed_ns, pair.candidate.elapsed_ns, *claimed
