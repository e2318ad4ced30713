"""A submission and its sandboxed processes."""

import hashlib
import math
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from roofwatch.ci.ab.submission import MAX_CONFIRMATIONS, SubmissionVerdict
from roofwatch.collector.accuracy.evaluation import make_inputs
from roofwatch.collector.accuracy.trial import Bench, NotComparableError
from roofwatch.collector.accuracy.variations import Test, Trial
from roofwatch.collector.device.environment import choose_device
from roofwatch.collector.digests import digest_of_file
from roofwatch.collector.runs.run_plan import matches
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.candidate import CandidateProcess
from roofwatch.collector.workers.candidate_protocol import CandidateError, CandidateLateError
from roofwatch.collector.workers.sandbox import (
    LAYERS,
    Policy,
    essential,
    make_groups,
    remove_groups,
)
from roofwatch.install import INSTALL_ROOT
from roofwatch.measurement.submissions import Request, Result, confirmations
from roofwatch.model.errors import CollectorError
from roofwatch.spec import Case, KernelSpec, Language

MAX_LISTED = 8
"""Listed cases that are tried."""
CHECK_UNTIL = 0.7
_CALL_UNTIL = 0.85
"""Shares of the budget. Checks on a busy machine may use the time of the screening too."""
_MIN_MEMORY_BYTES = 4 * 2**30
_SLACK_BYTES = 64 * 2**20
_SCRATCH_BYTES = 2**28
_MAX_PROCESSES = 256
# By text, as the candidate is not imported in this process.
_IMPORTS_TRITON = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_IMPORTS_COMPILER = re.compile(rb"^\s*(?:import|from)\s+(?:triton|roofwatch\.cuda)\b", re.MULTILINE)


class Rejected(Exception):  # noqa: N818
    """The verdict is known."""

    def __init__(
        self,
        verdict: SubmissionVerdict,
        reason: str,
        evidence: Sequence[dict[str, str]] = (),
    ) -> None:
        super().__init__(reason)
        self.verdict, self.evidence = verdict, list(evidence)


class BudgetSpent(BaseException):
    """The budget has ended. No `Exception`, as those of a spec's code are caught."""


class Stage(StrEnum):
    STARTING = "starting"
    CHECKING = "checking results"
    TIMING = "timing"
    CONFIRMING = "confirming"


_OPEN_QUESTIONS = {
    Stage.STARTING: "whether it is right, and faster, is open",
    Stage.CHECKING: "whether it is right, and faster, is open",
    Stage.TIMING: "it is right on all inputs; whether it is faster is open",
    Stage.CONFIRMING: "it is right, and was faster when first timed; whether that holds is open",
}


class Submission:
    """What is judged, and the result so far."""

    def __init__(
        self,
        request: Request,
        suite: SuiteAt,
        spec: KernelSpec,
        on_status: Callable[[str], None],
    ) -> None:
        self.request = request
        self.suite = suite
        self.spec = spec
        self._on_status = on_status
        self.began_s = time.monotonic()
        self.stage = Stage.STARTING
        self.stage_began_s = self.began_s
        self.input_count = 0
        """Inputs that are to be checked."""
        self.checked_count = 0
        self.device = choose_device(None)
        self.code = request.candidate.read_bytes()
        self.is_interpreted = self.device == "cpu" and _IMPORTS_TRITON.search(self.code) is not None
        self._is_compiled = _IMPORTS_COMPILER.search(self.code) is not None
        assert suite.source.path is not None
        self.result = Result(
            verdict=SubmissionVerdict.ERROR,
            reason="",
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
                "hash": hashlib.sha256(self.code).hexdigest(),
            },
        )
        self.result.budget = {
            "seconds": request.budget_s,
            "error_rate_spent": 0.0,
            "submissions_left": max(0, MAX_CONFIRMATIONS - confirmations(self.result.target)),
        }

    def enter(self, stage: Stage) -> None:
        """Begin a stage, and say so."""
        self.stage = stage
        self.stage_began_s = time.monotonic()
        self._on_status(stage)

    def out_of_budget(self, detail: str = "") -> Rejected:
        """Say what is open at the end of the budget, and what would decide it."""
        reason = f"the budget of {self.request.budget_s:g} s ended while {self.stage}"
        needed_s = 2 * self.request.budget_s
        if self.stage is Stage.CHECKING:
            reason += f", with {self.checked_count} of {self.input_count} inputs checked"
            spent_s = time.monotonic() - self.stage_began_s
            # one may be under way
            checks_s = spent_s * self.input_count / (self.checked_count + 1)
            needed_s = (self.stage_began_s - self.began_s + checks_s) / CHECK_UNTIL
        if detail:
            reason += f" ({detail})"
        rounded_s = math.ceil(needed_s / 10) * 10
        reason += (
            f"; {_OPEN_QUESTIONS[self.stage]}; smaller cases (--case) or about {rounded_s} s "
            "(--budget) would decide"
        )
        return Rejected(SubmissionVerdict.INCONCLUSIVE, reason)

    def start(
        self,
        stack: ExitStack,
        folder: Path,
        cases: Sequence[Case],
    ) -> tuple[CandidateProcess, CandidateProcess]:
        """Start the implementation's process and the candidate's, which the stack ends, for the
        cases to call.

        Raises:
            Rejected: the candidate cannot be loaded, or not be isolated as demanded.
            CollectorError: the machine or the spec is at fault.
        """
        # The judged bytes, as the file may change meanwhile.
        copy = folder / "candidate" / self.request.candidate.name
        copy.parent.mkdir()
        copy.write_bytes(self.code)
        arena_bytes = self._arena_bytes(cases)
        common = {
            "device": self.device,
            "is_interpreted": self.is_interpreted,
            "arena_bytes": arena_bytes,
            "import_roots": list(map(str, self.suite.source.import_roots)),
            "import_path": [path for path in sys.path if path],
        }
        of_spec = {**common, "spec": str(self.suite.source.path), "kernel": self.spec.name}
        of_candidate = {**common, "file": str(copy), "entry": self.request.entry}
        policy = self._policy(folder, arena_bytes)
        groups = make_groups(
            f"roofwatch-{secrets.token_hex(6)}", policy.memory_bytes, policy.process_count
        )
        # Groups outlive their processes if nobody removes them.
        stack.callback(remove_groups, groups)
        limited = replace(policy, groups=list(map(str, groups)))
        # Only the candidate runs within the limits of the groups.
        base = stack.enter_context(CandidateProcess("implementation", of_spec, policy))
        candidate = stack.enter_context(CandidateProcess("candidate", of_candidate, limited))
        # Both start at once, and are waited for then.
        base.wait_until_isolated(self.call_timeout_s())
        missing = candidate.wait_until_isolated(self.call_timeout_s())
        self.result.isolation = {
            "in_force": [name for name in LAYERS if name not in missing],
            "missing": missing,
        }
        lacking = essential(missing)
        if lacking and self.request.must_be_isolated:
            layers = ", ".join(f"{name} ({reason})" for name, reason in lacking.items())
            raise Rejected(
                SubmissionVerdict.ERROR, f"this machine lacks layers of isolation: {layers}"
            )
        try:
            # What fails here is no fault of the candidate.
            base.load(self.call_timeout_s())
        except CandidateLateError:
            raise self.out_of_budget() from None
        except CandidateError as error:
            raise CollectorError(
                f"{self.request.spec} cannot be loaded in the sandbox: {error}"
            ) from None
        try:
            candidate.load(self.call_timeout_s())
        except CandidateError as error:
            evidence = [self.evidence("load", self.request.entry, str(error))]
            raise Rejected(
                SubmissionVerdict.ERROR, f"the candidate cannot be loaded: {error}", evidence
            ) from None
        # Once: later rounds of the same submission compile nothing new.
        if self._is_compiled and not self.result.static:
            case = self.chosen_cases()[0]
            self._compile(
                {
                    **of_spec,
                    **of_candidate,
                    "compiled_case": case.id,
                    "is_interpreted": False,
                },
                limited,
            )
        return base, candidate

    def _compile(self, setup: Mapping[str, Any], policy: Policy) -> None:
        """Compile what the candidate launches in a process that has ended before anything
        is timed.
        """
        try:
            with CandidateProcess("compiler", setup, policy) as compiler:
                compiler.wait_until_isolated(self.call_timeout_s())
                self.result.static = compiler.load(self.call_timeout_s())
        except CandidateError as error:  # says nothing about results or times
            self.result.evidence.append(
                self.evidence("static", "compile for the targets", str(error))
            )

    def _arena_bytes(self, cases: Sequence[Case]) -> int:
        def needed_bytes(case: Case) -> int:
            inputs = make_inputs(self.spec, case, "cpu", only_integers=True).values()
            tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
            input_bytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
            return 2 * input_bytes + int(self.spec.memory_bytes(case))

        return 2 * max(map(needed_bytes, cases)) + _SLACK_BYTES

    def _policy(self, folder: Path, arena_bytes: int) -> Policy:
        memory_bytes = None
        if self.device == "cpu":
            memory_bytes = max(
                _MIN_MEMORY_BYTES, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3
            )
        readable = [
            INSTALL_ROOT,
            folder / "candidate",
            *self.suite.source.import_roots,
            *map(Path, sys.path),
        ]
        return Policy(
            scratch=str(folder),
            scratch_bytes=_SCRATCH_BYTES,
            readable=list(
                dict.fromkeys(
                    str(path) for path in readable if path.is_absolute() and path.exists()
                )
            ),
            memory_bytes=memory_bytes,
            mapped_bytes=_mapped_bytes() + arena_bytes,
            cpu_seconds=math.ceil(2 * self.request.budget_s),
            process_count=_MAX_PROCESSES,
            cpu=max(os.sched_getaffinity(0)) if self.device == "cpu" else None,
            groups=[],
        )

    def fastest(self, bench: Bench, cases: Sequence[Case]) -> str:
        """The implementation to compare with if none is named: the fastest that runs here."""
        if self.device == "cpu":
            languages = {Language.TORCH}
        else:
            languages = set(Language)
        directions = {case.direction for case in cases}
        names = [
            implementation.name
            for implementation in self.spec.implementations.values()
            if implementation.language in languages
            and not implementation.is_compiled
            and directions <= implementation.directions
        ]
        if not names:
            raise CollectorError(
                f"{self.spec.name} has no implementation that runs on {self.device}; name one "
                f"with --against"
            )
        if len(names) == 1:
            return names[0]
        trial = Trial(Test.LISTED, max(cases, key=self.spec.memory_bytes))
        times: dict[str, float] = {}
        for name in names:
            try:
                # The fastest of four calls, as the first ones warm up.
                times[name] = min(bench.call_base(trial, name)[2].elapsed_ns for _ in range(4))
            except NotComparableError:  # it does not run here
                continue
        if not times:
            raise CollectorError(
                f"none of {', '.join(names)} runs on {trial.name} here; name one with --against"
            )
        return min(times, key=lambda name: times[name])

    def evidence(self, test: str, case: str, message: str) -> dict[str, str]:
        return {
            "test": str(test),
            "case": case,
            "message": message,
            "repeat": self.request.command(),
        }

    def left_s(self, share: float) -> float:
        """Seconds until a share of the budget is spent."""
        return self.began_s + share * self.request.budget_s - time.monotonic()

    def call_timeout_s(self) -> float:
        return max(1.0, self.left_s(_CALL_UNTIL))

    def chosen_cases(self) -> list[Case]:
        """The largest of the declared cases that were asked for, the largest last."""
        cases = list(self.spec.cases)
        if self.request.cases is not None:
            cases = [case for case in cases if matches(case.id, self.request.cases)]
            if not cases:
                raise CollectorError(f"no case matches {', '.join(self.request.cases)}")
        else:
            usual = "small" if self.device == "cpu" else "quick"
            # If no case has the tag, all count.
            cases = [case for case in cases if usual in case.tags] or cases
        return sorted(cases, key=self.spec.memory_bytes)[-MAX_LISTED:]

    def fit(self, case: Case) -> Case:
        if self.is_interpreted:
            return self.spec.interpreted_case(case)
        return case


def _mapped_bytes() -> int:
    """Address space of this process, which has loaded torch: several GiB with CUDA's libraries."""
    page_count = int(Path("/proc/self/statm").read_text().split()[0])
    return page_count * os.sysconf("SC_PAGE_SIZE")
