"""Judge a candidate kernel: `roofwatch submit`."""

import hashlib
import math
import os
import re
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from roofwatch.arguments import repository_of, suite_at_commit
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
from roofwatch.collector.compile.cache import digest_of_file
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.roofline import INVALID_ABOVE, position
from roofwatch.collector.environment import choose_device
from roofwatch.collector.errors import CollectorError, SuiteError
from roofwatch.collector.git import run_git
from roofwatch.collector.suite import SuiteAt, load_suite
from roofwatch.collector.timing.method import default_method
from roofwatch.collector.workers.candidate import Arguments, CandidateError, CandidateProcess, Sandbox
from roofwatch.collector.workers.kernel_info import case_record
from roofwatch.collector.workers.sandbox import LAYERS, Policy, essential, make_groups, remove_groups
from roofwatch.install import INSTALL_ROOT
from roofwatch.measurement.submissions import Request, Result, ledger
from roofwatch.spec import Case, KernelSpec, Language

_MAX_LISTED, _MAX_TIMED, _MAX_UNSEEN, _MAX_FAILURES = 8, 3, 6, 5
_ROUNDS = 3
"""Pairs of pairs of calls of a case in a block."""
_EXCHANGES = 31
_CHECK_UNTIL, _SCREEN_UNTIL, _CALL_UNTIL, _CONFIRM_UNTIL = 0.5, 0.65, 0.85, 0.85
"""Shares of the budget."""
_MIN_MEMORY_BYTES = 4 * 2**30
_SLACK_BYTES = 64 * 2**20
_SCRATCH_BYTES, _MAX_PROCESSES = 2**28, 256
_IMPORTS_TRITON = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_IMPORTS_COMPILER = re.compile(rb"^\s*(?:import|from)\s+(?:triton|roofwatch\.cuda)\b", re.MULTILINE)


class _Rejected(Exception):  # noqa: N818
    """The verdict is known."""

    def __init__(self, verdict: SubmissionVerdict, reason: str, evidence: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(reason)
        self.verdict, self.evidence = verdict, list(evidence)


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
    with suite_at_commit(request.spec, request.revision) as suite:
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
        self._request, self._suite, self._spec = request, suite, spec
        self._on_status = on_status
        self._began_s = time.monotonic()
        self._device = choose_device(None)
        self._code = request.candidate.read_bytes()
        self._is_compiled = _IMPORTS_COMPILER.search(self._code) is not None
        self._is_interpreted = self._device == "cpu" and _IMPORTS_TRITON.search(self._code) is not None
        assert suite.source.path is not None
        self._result = Result(
            SubmissionVerdict.ERROR,
            "",
            spec={
                "file": str(request.spec),
                "kernel": spec.name,
                "revision": suite.commit.sha,
                "hash": digest_of_file(suite.source.path),
                "against": request.against,
            },
            candidate={
                "file": str(request.candidate),
                "entry": request.entry,
                "hash": hashlib.sha256(self._code).hexdigest(),
            },
        )
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
        except _Rejected as rejected:
            result.verdict, result.reason = rejected.verdict, str(rejected)
            result.evidence += rejected.evidence
        except (CollectorError, CandidateError) as error:  # of the spec or of the machine
            result.verdict, result.reason = SubmissionVerdict.ERROR, str(error)
        used = ledger().confirmations(self._target) + (self._spent_rate > 0)
        result.budget = {
            "seconds": self._request.budget_s,
            "seconds_spent": round(time.monotonic() - self._began_s, 1),
            "error_rate_spent": self._spent_rate,
            "submissions_left": max(0, MAX_CONFIRMATIONS - used),
        }
        return result

    # --- stages

    def _refuse_other_changes(self) -> None:
        repository = repository_of(self._request.spec)
        changed = run_git(repository, "diff", "--name-only", "-z", self._suite.commit.sha, "--").split("\0")
        own = self._request.candidate.resolve()
        others = [name for name in changed if name and (repository / name).resolve() != own]
        if others:
            listed = ", ".join(others[:5])
            raise _Rejected(
                SubmissionVerdict.INVALID,
                f"the work tree changes other files than the candidate: {listed}; commit or stash them",
                [self._evidence("changed files", name, "differs from the revision") for name in others[:20]],
            )

    def _run(self) -> TimeVerdict:
        cases = self._chosen_cases()
        with self._processes(cases) as bench:
            self._on_status("checking results")
            trials = self._check(bench, cases)
            self._describe(bench, trials)
            if self._is_interpreted:
                raise _Rejected(SubmissionVerdict.UNCONFIRMED, "right in Triton's interpreter; its time needs a GPU")
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
            raise _Rejected(
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
            base, candidate = self._start(stack, folder, cases)
            bench = Bench(self._spec, self._device, base, candidate, self._result.spec["against"], self._call_timeout_s)
            try:
                bench.against = bench.against or self._fastest(bench, cases)
                self._result.spec["against"] = bench.against
                yield bench
            except Failed as failed:
                raise self._rejection([failed]) from None
            finally:
                self._result.checks["calls"] += bench.call_count
                self._result.checks["verified"] += bench.checked_count

    def _start(
        self, stack: ExitStack, folder: Path, cases: Sequence[Case]
    ) -> tuple[CandidateProcess, CandidateProcess]:
        self._on_status("starting")
        copy = folder / "candidate" / self._request.candidate.name
        copy.parent.mkdir()
        copy.write_bytes(self._code)
        sandbox = self._sandbox(folder, cases)
        roots = self._suite.source.import_roots
        of_spec = {"spec": str(self._suite.source.path), "kernel": self._spec.name, "roots": list(map(str, roots))}
        own = {"file": str(copy), "entry": self._request.entry}
        policy = sandbox.policy
        groups = make_groups(f"roofwatch-{secrets.token_hex(6)}", policy.memory_bytes, policy.process_count)
        stack.callback(remove_groups, groups)
        base = stack.enter_context(CandidateProcess(sandbox, "implementation", of_spec, roots))
        limited = replace(sandbox, policy=replace(policy, groups=list(map(str, groups))))
        candidate = stack.enter_context(CandidateProcess(limited, "candidate", own, roots))
        compiler: CandidateProcess | None = None
        if self._is_compiled and not self._result.static:
            compiled = {**of_spec, **own, "compiled_case": self._chosen_cases(as_declared=True)[0].id}
            compiling = replace(limited, is_interpreted=False)
            compiler = stack.enter_context(CandidateProcess(compiling, "compiler", compiled, roots))
        for process in (base, candidate):
            process.wait_until_isolated(self._call_timeout_s())
        missing = candidate.missing_layers
        self._result.isolation = {"in_force": [name for name in LAYERS if name not in missing], "missing": missing}
        lacking = essential(missing)
        if lacking and self._request.must_be_isolated:
            why = ", ".join(f"{name} ({why})" for name, why in lacking.items())
            raise _Rejected(SubmissionVerdict.ERROR, f"this machine lacks layers of isolation: {why}")
        try:
            base.load(self._call_timeout_s())
        except CandidateError as error:
            raise CollectorError(f"{self._request.spec} cannot be loaded in the sandbox: {error}") from None
        try:
            candidate.load(self._call_timeout_s())
        except CandidateError as error:
            evidence = [self._evidence("load", self._request.entry, str(error))]
            raise _Rejected(SubmissionVerdict.ERROR, f"the candidate cannot be loaded: {error}", evidence) from None
        if compiler is not None:
            self._compile(compiler)
        return base, candidate

    def _compile(self, compiler: CandidateProcess) -> None:
        try:
            compiler.wait_until_isolated(self._call_timeout_s())
            compiler.load(self._call_timeout_s())
            self._result.static = list(compiler.static_facts)
        except CandidateError as error:  # says nothing about results or times
            self._result.evidence.append(self._evidence("static", "compile for the targets", str(error)))

    def _sandbox(self, folder: Path, cases: Sequence[Case]) -> Sandbox:
        input_bytes = max(_input_bytes(self._spec, case) for case in cases)
        moved_bytes = max(int(self._spec.memory_bytes(case)) for case in cases)
        arena_bytes = 2 * (2 * input_bytes + moved_bytes) + _SLACK_BYTES
        memory_bytes = None
        if self._device == "cpu":
            memory_bytes = max(_MIN_MEMORY_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3)
            memory_bytes += arena_bytes
        readable = [INSTALL_ROOT, folder / "candidate", *self._suite.source.import_roots, *map(Path, sys.path)]
        policy = Policy(
            scratch="",
            scratch_bytes=_SCRATCH_BYTES,
            readable=list(dict.fromkeys(str(path) for path in readable if path.is_absolute() and path.exists())),
            memory_bytes=memory_bytes,
            cpu_seconds=math.ceil(2 * self._request.budget_s),
            process_count=_MAX_PROCESSES,
            cpu=max(os.sched_getaffinity(0)) if self._device == "cpu" else None,
            groups=[],
        )
        return Sandbox(folder, self._device, self._is_interpreted, arena_bytes, policy)

    def _fastest(self, bench: Bench, cases: Sequence[Case]) -> str:
        """The implementation to compare with if none is named: the fastest that runs here."""
        languages = {Language.TORCH} if self._device == "cpu" else set(Language)
        directions = {case.direction for case in cases}
        found = [
            each.name
            for each in self._spec.implementations.values()
            if each.language in languages and not each.is_compiled and directions <= each.directions
        ]
        if not found:
            raise CollectorError(
                f"{self._spec.name} has no implementation that runs on {self._device}; name one with --against"
            )
        if len(found) == 1:
            return found[0]
        trial = Trial(Test.LISTED, max(cases, key=self._spec.memory_bytes))
        times: dict[str, float] = {}
        for name in found:
            try:
                times[name] = min(bench.call_base(trial, name)[2].elapsed_ns for _ in range(4))
            except CandidateError:  # it does not run here
                continue
        if not times:
            raise CollectorError(f"none of {', '.join(found)} runs on {trial.name} here; name one with --against")
        return min(times, key=lambda name: times[name])

    def _check(self, bench: Bench, cases: Sequence[Case]) -> list[Trial]:
        """Try the candidate on listed and unseen inputs.

        Returns:
            Listed cases and unseen shapes that both sides support, the slowest first.
        """
        random = secrets.SystemRandom()
        listed = [Trial(Test.LISTED, case) for case in cases]
        edges = [Trial(Test.LISTED, self._fit(case)) for case in self._spec.edges]
        smallest = min((case for case in cases), key=self._spec.memory_bytes)
        known = frozenset(trial.case.id for trial in (*listed, *edges))
        shapes = list(unseen_shapes([trial.case for trial in listed], known, count=_MAX_UNSEEN))
        rest = [
            *random.sample(edges, min(_MAX_LISTED, len(edges))),
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
            if self._left_s(_CHECK_UNTIL) <= 0 and trial not in first:
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
        exchange_ns = statistics.median(bench.base.exchange_ns(self._call_timeout_s()) for _ in range(_EXCHANGES))
        for trial in trials:  # a warm-up
            bench.check(bench.time_once(trial, is_base_first=True))
        blocks: list[Block] = []
        next_look = FIRST_LOOK_BLOCKS
        while True:
            while len(blocks) < next_look and (len(blocks) < FIRST_LOOK_BLOCKS or self._left_s(until) > 0):
                if self._left_s(_CONFIRM_UNTIL) <= 0:
                    raise _Rejected(SubmissionVerdict.INCONCLUSIVE, "the budget is spent; raise --budget")
                blocks.append(self._block(bench, trials))
            judged = judge_times(blocks, exchange_ns, rate=rate)
            self._result.effect = asdict(judged.effect)
            if judged.verdict is not SubmissionVerdict.INCONCLUSIVE or self._left_s(until) <= 0:
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
            _Rejected: it is faster than the hardware allows.
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
            raise _Rejected(SubmissionVerdict.INVALID, reason, [self._evidence("roofline", case.id, reason)])

    def _rejection(self, failures: Sequence[Failed]) -> _Rejected:
        verdict = SubmissionVerdict.INCORRECT
        if any(failed.is_forgery for failed in failures):
            verdict = SubmissionVerdict.INVALID
        elif all(failed.is_late for failed in failures):
            verdict = SubmissionVerdict.INCONCLUSIVE
        evidence = [self._evidence(failed.trial.test, failed.trial.name, str(failed)) for failed in failures]
        first = failures[-1] if failures[-1].is_forgery else failures[0]
        return _Rejected(verdict, f"{first.trial.name}: {first}", evidence)

    def _evidence(self, test: str, case: str, message: str) -> dict[str, str]:
        return {"test": str(test), "case": case, "message": message, "repeat": self._request.command()}

    def _left_s(self, share: float) -> float:
        """Seconds until a share of the budget is spent."""
        return self._began_s + share * self._request.budget_s - time.monotonic()

    def _call_timeout_s(self) -> float:
        return max(1.0, self._left_s(_CALL_UNTIL))

    def _chosen_cases(self, *, as_declared: bool = False) -> list[Case]:
        cases = list(self._spec.cases)
        if self._request.cases is not None:
            cases = [case for case in cases if any(fnmatchcase(case.id, each) for each in self._request.cases)]
            if not cases:
                raise CollectorError(f"no case matches {', '.join(self._request.cases)}")
        else:
            usual = "small" if self._device == "cpu" else "quick"
            cases = [case for case in cases if usual in case.tags] or cases
        largest = sorted(cases, key=self._spec.memory_bytes)[-_MAX_LISTED:]
        return largest if as_declared else [self._fit(case) for case in largest]

    def _fit(self, case: Case) -> Case:
        return self._spec.interpreted_case(case) if self._is_interpreted else case


def _input_bytes(spec: KernelSpec, case: Case) -> int:
    inputs = make_inputs(spec, case, "cpu", only_integers=True)
    return Arguments({name: each for name, each in inputs.items() if isinstance(each, torch.Tensor)}, {}).byte_count()


def _times(pair: Pair) -> tuple[float, float, float, float]:
    """In the order of the fields of `Block`."""
    claimed = max(1.0, pair.base.claimed_ns), max(1.0, pair.candidate.claimed_ns)
    return pair.base.elapsed_ns, pair.candidate.elapsed_ns, *claimed
