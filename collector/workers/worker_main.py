"""The worker process: loads one suite and does one job after another, so that a kernel that crashes, hangs or
exhausts memory costs its own case and nothing else.

Of ours it imports `collector` and the public names in `roofwatch` only, and all of that before the suite: a
repository with its own `kernels`, `db` or `ci` package finds its own.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic_ns
from typing import Any, Literal

import torch
from pydantic import BaseModel, TypeAdapter

from roofwatch.collector.accuracy.accuracy import Baselines, check_accuracy
from roofwatch.collector.accuracy.check import Checker
from roofwatch.collector.accuracy.evaluation import References
from roofwatch.collector.autotune import AutotuneRecorder
from roofwatch.collector.compile.sources import describe_sources
from roofwatch.collector.compile.static import compile_case
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.environment import choose_device, collect_environment, device_uuid
from roofwatch.collector.errors import CollectorError, SuiteError, TimerError
from roofwatch.collector.profiling.case_profile import profile_calls
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import Autotuning
from roofwatch.collector.suite import load_suite
from roofwatch.collector.timing.caches import Copies
from roofwatch.collector.timing.memory import measure_memory, memory_floor
from roofwatch.collector.timing.timing import choose_method, sample_launches, timing_stream
from roofwatch.collector.workers.case_call import another_call, compiled, failure_of, prepare_call
from roofwatch.collector.workers.kernel_info import checkable_cases, describe_kernel, repository_of
from roofwatch.collector.workers.process_setup import Rank, keep_freed_memory, limit_memory
from roofwatch.collector.workers.protocol import (
    CheckAccuracy,
    ChooseTiming,
    CompileStatic,
    DescribeEnvironment,
    DescribeSources,
    FullCheck,
    FullyChecked,
    Job,
    MeasureCeilings,
    MeasuredCeiling,
    Mode,
    ProfileCalls,
    Reply,
    SuiteInfo,
    TimeBlock,
    TimedBlock,
    TimingChoice,
    WorkerSettings,
)
from roofwatch.spec import Case, Draws, Implementation, KernelSpec, Language, UnsupportedError


@dataclass
class _Suite:
    mode: Mode
    device: str
    specs: tuple[KernelSpec, ...]
    rank: Rank | None
    """None: works alone."""
    modules: frozenset[str] = frozenset()
    """Names of the modules that loading the suite imported."""
    baselines: Baselines = field(default_factory=Baselines)
    draws: Draws = field(default_factory=Draws)
    references: References = field(init=False)
    autotuning: AutotuneRecorder = field(default_factory=AutotuneRecorder)
    checker: Checker = field(default_factory=Checker)
    _compiled: dict[tuple[str, str], Callable[..., Any]] = field(default_factory=dict)
    _is_settled: bool = False

    def __post_init__(self) -> None:
        self.references = References(self.draws)

    def settle(self) -> None:
        """What is loaded before the first block, compilers among it, stays for good: collecting garbage before each
        block, which took a fifth of a second, need not look at it again.
        """
        if not self._is_settled:
            gc.collect()
            gc.freeze()
            self._is_settled = True

    @property
    def executor(self) -> Literal["device", "interpreter"]:
        return "interpreter" if self.mode is Mode.INTERPRETER else "device"

    @property
    def launch_device(self) -> str:
        """Where kernels run: Triton's interpreter knows the CPU alone."""
        return "cpu" if self.mode is Mode.INTERPRETER else self.device

    def find(self, case_id: str, implementation: str) -> tuple[KernelSpec, Case, Implementation]:
        for spec in self.specs:
            for _, case in checkable_cases(spec):
                if case.id == case_id:
                    return spec, case, spec.implementations[implementation]
        raise SuiteError(f"no case {case_id!r} in the suite")

    def gather(self, spec: KernelSpec, case: Case) -> None:
        """Have all ranks that a case needs find each other; nothing for a case that one process runs.

        Raises:
            UnsupportedError: this process is not one of as many ranks, or the machine cannot serve them.
        """
        count = 1 if self.rank is None else self.rank.count
        if spec.rank_count(case) != count:
            raise UnsupportedError(f"needs {spec.rank_count(case)} ranks, and this process is one of {count}")
        if self.rank is not None:
            self.rank.join()

    def watching_autotuner(self, implementation: Implementation) -> AbstractContextManager[list[Autotuning]]:
        """What is tuned within, and tuned before and used again within; nothing where Triton has nothing to do."""
        is_tuned = implementation.language is Language.TRITON and self.mode is Mode.DEVICE
        return self.autotuning.watching() if is_tuned else nullcontext([])

    def launcher(self, spec: KernelSpec, implementation: Implementation) -> Callable[..., Any]:
        """What to call: for `compile` the compiled form, made once per process."""
        if not implementation.is_compiled:
            return implementation.launch
        key = (spec.name, implementation.name)
        if key not in self._compiled:
            self._compiled[key] = compiled(implementation, self.launch_device)
        return self._compiled[key]


def main(lifeline_fd: int, jobs_fd: int, replies_fd: int) -> None:
    """Serve until the job pipe closes.

    Args:
        lifeline_fd: Reads end-of-file when the collector is gone, in whatever way: then so is this process.
        jobs_fd: One settings line, then one job a line.
        replies_fd: One `SuiteInfo` line, then one reply a line.
    """
    faulthandler.enable()
    threading.Thread(target=_exit_with_parent, args=(lifeline_fd,), daemon=True).start()
    with os.fdopen(jobs_fd, "rb") as jobs, os.fdopen(replies_fd, "wb") as replies:

        def send(message: BaseModel) -> None:
            replies.write(message.model_dump_json().encode() + b"\n")
            replies.flush()

        settings = WorkerSettings.model_validate_json(jobs.readline())
        try:
            device = choose_device(settings.device)
        except CollectorError as error:
            send(SuiteInfo(device=settings.device or "", kernels=(), error=str(error)))
            return
        if settings.cache_folder is not None:
            # both read it whenever they need it, so it need not be there when they are imported
            os.environ["TRITON_CACHE_DIR"] = f"{settings.cache_folder}/triton"
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{settings.cache_folder}/inductor"
        if settings.mode is Mode.INTERPRETER:
            # its interpreter needs NumPy, which a machine that only measures may lack
            from roofwatch.collector.accuracy.evaluation import round_as_a_gpu_does

            round_as_a_gpu_does()
        if settings.thread_count is not None:
            torch.set_num_threads(settings.thread_count)
        if device == "cpu":
            limit_memory(settings.memory_share)
            keep_freed_memory()
        modules_before = frozenset(sys.modules)
        try:
            specs = load_suite(settings.source)
            repository = repository_of(settings.source)
            info = SuiteInfo(device=device, kernels=tuple(describe_kernel(spec, repository) for spec in specs))
        except SuiteError as error:
            send(SuiteInfo(device=device, kernels=(), error=str(error)))
            return
        send(info)
        rank = None if settings.rank is None else Rank(settings.rank, device)
        suite = _Suite(settings.mode, device, specs, rank, frozenset(sys.modules) - modules_before)
        for line in jobs:
            send(_do(suite, _JOB.validate_json(line)))


_JOB: TypeAdapter[Job] = TypeAdapter(Job)


def _do(suite: _Suite, job: Job) -> Reply:
    try:
        if isinstance(job, DescribeSources):
            return Reply(suite_sources=describe_sources(suite.specs, suite.modules))
        if isinstance(job, DescribeEnvironment):
            return Reply(environment=collect_environment(suite.device), device_uuid=device_uuid(suite.device))
        if isinstance(job, MeasureCeilings):
            return Reply(ceilings=tuple(_ceilings(suite.device, job)))
        if isinstance(job, ChooseTiming):
            return Reply(timing=_choose_timing(suite.device, job))
        spec, case, implementation = suite.find(job.case_id, job.implementation)
        if isinstance(job, CompileStatic):
            return Reply(static_facts=tuple(compile_case(spec, implementation, case, job.targets)))
        suite.gather(spec, case)
        if isinstance(job, CheckAccuracy):
            return _check(suite, spec, case, implementation)
        if isinstance(job, FullCheck):
            return _check_fully(suite, spec, case, implementation, job)
        if isinstance(job, ProfileCalls):
            return _profile(suite, spec, case, implementation)
        return _time(suite, spec, case, implementation, job)
    except Exception as error:  # noqa: BLE001  the boundary: whatever a kernel raises is this case's outcome
        return Reply(failure=failure_of(error))


def _ceilings(device: str, job: MeasureCeilings) -> Iterator[MeasuredCeiling]:
    began_ns = monotonic_ns()
    with timing_stream(device):
        for ceiling in measure_ceilings(device, job.dtypes, job.timer):
            ended_ns = monotonic_ns()
            yield MeasuredCeiling(ceiling=ceiling, began_ns=began_ns, ended_ns=ended_ns)
            began_ns = ended_ns


def _choose_timing(device: str, job: ChooseTiming) -> TimingChoice:
    try:
        return TimingChoice(chosen=choose_method(device, job.timer, job.cache, job.touched_bytes))
    except TimerError as error:
        return TimingChoice(error=str(error))


def _check(suite: _Suite, spec: KernelSpec, case: Case, implementation: Implementation) -> Reply:
    with suite.watching_autotuner(implementation):
        accuracy = check_accuracy(
            spec,
            implementation,
            case,
            launch=suite.launcher(spec, implementation),
            device=suite.launch_device,
            executor=suite.executor,
            baselines=suite.baselines,
            references=suite.references,
        )
    return Reply(accuracy=accuracy)


def _check_fully(suite: _Suite, spec: KernelSpec, case: Case, implementation: Implementation, job: FullCheck) -> Reply:
    report = suite.checker.check(
        spec,
        case,
        implementation,
        launch=suite.launcher(spec, implementation),
        device=suite.launch_device,
        executor=suite.executor,
        layout=job.layout,
    )
    is_done = job.layout is not None or report.outcome is not Outcome.OK or case in spec.edges
    layouts = () if is_done else suite.checker.layouts(spec, case, suite.launch_device)
    return Reply(fully_checked=FullyChecked(report=report, layouts=layouts))


def _time(suite: _Suite, spec: KernelSpec, case: Case, implementation: Implementation, job: TimeBlock) -> Reply:
    suite.references.forget()
    suite.settle()
    launcher = suite.launcher(spec, implementation)

    def make_call() -> Callable[[], object]:
        return prepare_call(launcher, spec, case, suite.device, suite.draws)

    with timing_stream(suite.device):
        floor = memory_floor(suite.device)
        call, tuned = _tuned(suite, implementation, make_call)
        memory = None if floor is None else measure_memory(call, floor)
        timed = sample_launches(
            call,
            job.plan,
            device=suite.device,
            method=job.method,
            launches_per_sample=job.launches_per_sample,
            ranks=suite.rank,
            copies=Copies(partial(another_call, make_call), touched_bytes=float(spec.memory_bytes(case))),
        )
    return Reply(
        block=TimedBlock(
            block=timed.block,
            launches_per_sample=timed.launches_per_sample,
            method=timed.method,
            memory=memory,
            autotuning=tuple(tuned),
            began_ns=timed.began_ns,
            ended_ns=timed.ended_ns,
            warm_up_ns=timed.warm_up_ns,
        )
    )


def _profile(suite: _Suite, spec: KernelSpec, case: Case, implementation: Implementation) -> Reply:
    suite.references.forget()
    launcher = suite.launcher(spec, implementation)
    with timing_stream(suite.device):
        call = prepare_call(launcher, spec, case, suite.device, suite.draws)
        profile = profile_calls(call, suite.device, case_id=case.id, implementation=implementation.name)
    return Reply(profile=profile)


def _tuned(
    suite: _Suite, implementation: Implementation, make_call: Callable[[], Callable[[], object]]
) -> tuple[Callable[[], object], list[Autotuning]]:
    """The call, and what Triton's autotuner chose for it: tuned and compiled before anything is timed, else the little
    time of a warm-up would be over before it began.
    """
    with suite.watching_autotuner(implementation) as tuned:
        call = make_call()
        if implementation.language is Language.TRITON or implementation.is_compiled:
            call()
    return call, tuned


def _exit_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)
    os._exit(1)
