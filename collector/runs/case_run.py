"""The cases that a run selects: what it knows about each implementation of them, and the
measurement made of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from roofwatch.collector.autotune import merged
from roofwatch.collector.device.roofline import INVALID_ABOVE, roof_of
from roofwatch.collector.runs.journal import Entry, TimedStep
from roofwatch.collector.runs.run_plan import ALL, RunPlan, matches
from roofwatch.collector.suite import SuiteAt
from roofwatch.model.errors import SuiteError
from roofwatch.model.machine import Ceiling, Environment, Outcome
from roofwatch.model.measurement import Autotuning, Block, CaseRecord, Measurement, MemoryUse
from roofwatch.model.proofs import CaseProof
from roofwatch.model.results import Accuracy, CaseProfile, StaticFacts
from roofwatch.model.timing_method import TimingMethod
from roofwatch.model.worker_protocol import (
    CheckAccuracy,
    Failure,
    ImplementationInfo,
    KernelInfo,
    Reply,
    Subject,
    SuiteInfo,
)

# How the message of a kernel begins whose module the commit does not have.
_IMPORT_ERRORS = ("ModuleNotFoundError", "ImportError")
ON_REQUEST = "on_request"
"""Tag of cases that are measured only if their kernel or case is named: the bundled workloads."""


@dataclass
class CaseRun:
    case: CaseRecord
    implementation: ImplementationInfo
    rank_count: int
    runs_here: bool = True
    """Whether the device can run it. Triton code is only compiled and interpreted on a CPU."""
    accuracy: Accuracy | None = None
    static_facts: tuple[StaticFacts, ...] = ()
    proof: CaseProof | None = None
    profile: CaseProfile | None = None
    blocks: list[Block] = field(default_factory=list)
    failure: Failure | None = None
    method: TimingMethod | None = None
    """Method of the blocks; None before the first one."""
    launches_per_sample: int | None = None
    memory: MemoryUse | None = None
    """Memory of the first block; the others are equal."""
    autotuning: tuple[Autotuning, ...] = ()

    @property
    def subject(self) -> Subject:
        return Subject(self.case.case_id, self.implementation.name)

    @property
    def can_be_timed(self) -> bool:
        """Whether it is correct and has not failed during timing."""
        is_correct = self.accuracy is not None and self.accuracy.outcome is Outcome.OK
        return is_correct and self.runs_here and self.failure is None

    def is_later_than(self, suite: SuiteAt) -> bool:
        """Whether the commit lacks a kernel of the benchmark files that it was given.

        Its own files do not declare it, and importing it fails.
        """
        name = (self.case.kernel, self.implementation.name)
        if suite.declared is None or name in suite.declared or self.accuracy is None:
            return False
        message = self.accuracy.message or ""
        return self.accuracy.outcome.is_failure and message.startswith(_IMPORT_ERRORS)

    def accuracy_of(self, reply: Reply) -> Accuracy:
        """The accuracy that a worker replied to a check of this case."""
        if reply.checked is not None:
            return reply.checked.report.accuracy(self.subject.case_id, reply.checked.errors)
        failure = reply.failure
        assert failure is not None
        executor = "interpreter"
        if self.runs_here:
            executor = "device"
        return Accuracy(
            **self.subject.named,
            executor=executor,
            outcome=failure.outcome,
            message=failure.message,
        )

    def apply(self, entry: Entry, *, keeps_gaps: bool) -> None:
        """Add a result of this case; used during the run and to resume it.

        Args:
            entry: Its result replaces an earlier one of the same kind.
            keeps_gaps: Add a timed block too if blocks before it are missing.
        """
        self.accuracy = entry.accuracy or self.accuracy
        self.static_facts = entry.compiled or self.static_facts
        self.proof = entry.proof or self.proof
        self.profile = entry.profile or self.profile
        if entry.timed is None:
            return
        # After a damaged line, later blocks of a pair would be compared with other blocks of its
        # other side.
        follows = entry.timed.blocks_before <= len(self.blocks)
        if keeps_gaps or follows:
            self._add_timed(entry.timed)

    def _add_timed(self, step: TimedStep) -> None:
        """Add a timed block, or the failure that ends the timing."""
        # A step that is repeated replaces the blocks from there on.
        del self.blocks[step.blocks_before :]
        self.failure = step.failure
        if step.taken is not None:
            self.blocks.append(step.taken.block)
            self.method = step.taken.method
            self.launches_per_sample = step.taken.launches_per_sample
            self.memory = self.memory or step.taken.memory
            self.autotuning = merged(self.autotuning, step.taken.autotuning)

    def measurement(
        self,
        method: TimingMethod,
        ceilings: Sequence[Ceiling],
        environment: Environment,
    ) -> Measurement:
        """The measurement with its roofline position; `method` is that of the run."""
        outcome = Outcome.OK
        message = None
        blocks = tuple(self.blocks)
        failure = self._why_untimed()
        # only a measurement without a failure may carry times
        if failure is not None:
            outcome = failure.outcome
            message = failure.message
            blocks = ()
        measured = Measurement(
            **self.subject.named,
            outcome=outcome,
            message=message,
            timer=method.timer,
            cache=method.cache,
            launches_per_sample=self.launches_per_sample or 1,
            blocks=blocks,
            memory=self.memory,
            autotuning=self.autotuning,
        )
        return _under_the_roof(
            measured=measured,
            case=self.case,
            ceilings=ceilings,
            environment=environment,
        )

    def _why_untimed(self) -> Failure | None:
        """Why there are no samples; None if there are."""
        if self.accuracy is not None and self.accuracy.outcome is not Outcome.OK:
            return Failure(outcome=self.accuracy.outcome, message=self.accuracy.message or "")
        if self.failure is not None:
            return self.failure
        if not self.runs_here:
            message = (
                "Triton code does not run on a CPU: checked in the interpreter and "
                "compiled, not timed"
            )
            return Failure(outcome=Outcome.UNSUPPORTED, message=message)
        if self.blocks:
            return None
        return Failure(outcome=Outcome.UNSUPPORTED, message="not timed in this run")


def _under_the_roof(
    measured: Measurement,
    case: CaseRecord,
    ceilings: Sequence[Ceiling],
    environment: Environment,
) -> Measurement:
    """Add the binding ceiling to a measurement; drop the samples if they are faster than the
    ceiling allows.
    """
    if measured.median_ns is None:
        return measured
    roof = roof_of(case, ceilings, measured.cache)
    if roof.ideal_ns is None:
        return measured
    excess = roof.least_ns / measured.median_ns
    limit = INVALID_ABOVE[environment.device_kind]
    if excess > limit:
        message = (
            f"median {measured.median_ns:.0f} ns is {excess:.1f} times faster than the "
            f"{roof.bound} ceiling "
            f"allows ({roof.least_ns:.0f} ns; the limit is {limit:g} times): check flop_count, "
            "memory_bytes and the result"
        )
        return measured.model_copy(
            update={
                "outcome": Outcome.INVALID,
                "message": message,
                "blocks": (),
            }
        )
    if case.bus_bytes is not None:
        return measured  # bound by links, whose ceiling is not measured
    return measured.model_copy(
        update={"bound": roof.bound, "utilisation": roof.ideal_ns / measured.median_ns}
    )


# --- selection


def select(info: SuiteInfo, plan: RunPlan) -> tuple[CaseRun, ...]:
    """Select the subjects that match a plan, in the order of the suite.

    Raises:
        SuiteError: nothing matches.
    """
    selected: list[CaseRun] = []
    for kernel in info.kernels:
        if matches(kernel.name, plan.kernels):
            selected += _select_of_kernel(kernel, info.device, plan)
    if selected:
        return tuple(selected)
    message = (
        f"nothing to measure: no kernel matches {' '.join(plan.kernels)} with an implementation "
        f"that matches {' '.join(plan.implementations or ALL)}"
    )
    if plan.cases:
        message += f" and a case that matches {' '.join(plan.cases)}"
    elif plan.tags:
        message += f" and a case tagged {' '.join(plan.tags)}"
    message += f"; the suite has {', '.join(kernel.name for kernel in info.kernels)}"
    if plan.tags:
        all_tags: set[str] = set()
        for kernel in info.kernels:
            all_tags.update(*(case.tags for case in kernel.cases))
        message += f", its cases the tags {' '.join(sorted(all_tags))}"
    raise SuiteError(message)


def _select_of_kernel(kernel: KernelInfo, device: str, plan: RunPlan) -> Iterator[CaseRun]:
    """Cases of a kernel with each implementation that the plan matches."""
    for case in _select_cases(kernel, device, plan):
        for implementation in kernel.implementations:
            if case.direction not in implementation.directions:
                continue
            if matches(implementation.name, plan.implementations or ALL):
                yield CaseRun(
                    case=case,
                    implementation=implementation,
                    rank_count=kernel.rank_count(case),
                    # Triton and CUDA C++ are timed on GPUs only
                    runs_here=device != "cpu" or implementation.language == "torch",
                )


def _select_cases(kernel: KernelInfo, device: str, plan: RunPlan) -> tuple[CaseRecord, ...]:
    """Cases that the plan names, or those usual on the device."""
    if plan.cases is not None:
        return tuple(case for case in kernel.cases if matches(case.case_id, plan.cases))
    offered = tuple(
        case for case in kernel.cases if plan.kernels != ALL or ON_REQUEST not in case.tags
    )
    if plan.tags is not None:
        required_tags = set(plan.tags)
        return tuple(case for case in offered if required_tags.issubset(case.tags))
    usual_tag = plan.usual_tag
    if not usual_tag:
        usual_tag = "quick"
        if device == "cpu":
            usual_tag = "small"
    usual_cases = tuple(case for case in offered if usual_tag in case.tags or not case.tags)
    return usual_cases or offered


def check_jobs(cases: Sequence[CaseRun], *, has_regimes: bool) -> list[CheckAccuracy]:
    """The checks that are missing.

    With regimes, the first case of each kind is checked at other values too: what a kernel does
    with them hardly depends on the shape.
    """
    jobs: list[CheckAccuracy] = []
    seen_kinds: set[tuple[str, ...]] = set()
    for case in cases:
        kernel, _shape, dtype, direction = case.subject.case_id.split("/")
        kind = (kernel, dtype, direction, case.subject.implementation)
        is_first_of_kind = kind not in seen_kinds
        seen_kinds.add(kind)
        if case.accuracy is None:
            job = CheckAccuracy(
                **case.subject.named,
                rank_count=case.rank_count,
                with_regimes=has_regimes and is_first_of_kind,
            )
            jobs.append(job)
    return jobs


def words_of(accuracy: Accuracy) -> str:
    """Outcome and relative error, as a person reads them while the run goes on."""
    if accuracy.worst is None:
        return str(accuracy.outcome)
    return f"{accuracy.outcome}, error {accuracy.worst.rmse_ratio:.1e}"
