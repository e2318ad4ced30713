"""The worker process: loads one suite and does one job after another.

A kernel that crashes, hangs or exhausts memory costs only its own case. Of roofwatch, only
`collector` and the public names are imported, and before the suite: a repository with its own
`kernels`, `db` or `ci` package finds its own.
"""

import faulthandler
import gc
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from roofwatch.collector.accuracy.accuracy import BASELINE_NAME, CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.collector.accuracy.corrected_interpreter import interpreter_defect
from roofwatch.collector.accuracy.layouts import layouts_of
from roofwatch.collector.accuracy.regimes import regimes_of
from roofwatch.collector.autotune import AutotuneRecorder
from roofwatch.collector.build.provenance import ProjectFiles, installed_names
from roofwatch.collector.compile.pretended_device import as_on_gpu
from roofwatch.collector.compile.proof import prove_case
from roofwatch.collector.compile.sources import ProjectPackages, source_digests
from roofwatch.collector.compile.static import compile_case
from roofwatch.collector.compile.target_device import LaunchedAtImportError, pretending_driver
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.environment import choose_device, collect_environment, device_uuid
from roofwatch.collector.jobs.ahead import compile_ahead
from roofwatch.collector.jobs.case_call import another_call, compiled, failure_of, prepare_call
from roofwatch.collector.jobs.configurations import compile_configurations
from roofwatch.collector.jobs.kernel_info import describe_kernel, find_case, repository_of
from roofwatch.collector.pinning import pinning
from roofwatch.collector.profiling.case_profile import profile_calls
from roofwatch.collector.suite import forget_failed_imports, load_suite
from roofwatch.collector.timing.memory import (
    Copies,
    keep_freed_memory,
    measure_memory,
    memory_floor,
)
from roofwatch.collector.timing.stopwatch import Ranks
from roofwatch.collector.timing.timing import choose_method, sample_launches, timing_stream
from roofwatch.model.check_report import CheckReport
from roofwatch.model.errors import CollectorError, SuiteError, TimerError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Autotuning
from roofwatch.model.results import TensorError
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import (
    CheckAccuracy,
    Checked,
    ChooseTiming,
    CompileAhead,
    CompileConfigurations,
    CompileStatic,
    DescribeEnvironment,
    DescribeSources,
    Job,
    MeasureCeilings,
    PrepareCall,
    ProfileCalls,
    ProveCase,
    Reply,
    SuiteInfo,
    TimeBlock,
    WorkerSettings,
)
from roofwatch.spec import Case, Implementation, KernelSpec, Language, UnsupportedError
from roofwatch.spec.workload import WORKLOADS

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_MEMORY_SHARE = 0.8
CalledJob = CheckAccuracy | PrepareCall | ProfileCalls | TimeBlock


def main(lifeline_fd: int, jobs_fd: int, replies_fd: int) -> None:
    """Serve until the job pipe closes.

    Args:
        lifeline_fd: Reads end-of-file when the collector is gone; then this process exits.
        jobs_fd: One line of settings, then one job per line.
        replies_fd: One reply per line; the first holds the suite.
    """
    faulthandler.enable()
    threading.Thread(target=_exit_with_parent, args=(lifeline_fd,), daemon=True).start()
    with os.fdopen(jobs_fd, "rb") as jobs, os.fdopen(replies_fd, "wb") as replies:

        def send(reply: Reply) -> None:
            replies.write(reply.model_dump_json(exclude_defaults=True).encode() + b"\n")
            replies.flush()

        settings = WorkerSettings.model_validate_json(jobs.readline())
        try:
            suite = _Suite(settings)
            described = Reply(suite=suite.describe())
            began_ns = time.perf_counter_ns()
            files = ProjectFiles(settings.source, suite.preloaded)
            send(_with_loaded(described, files, began_ns))
        except CollectorError as error:
            send(Reply(error=str(error)))
            return
        for line in jobs:
            try:
                reply = suite.do(_JOB.validate_json(line))
            except Exception as error:  # noqa: BLE001  it is the outcome of the case
                reply = Reply(failure=failure_of(error))
            send(_with_loaded(reply, files, time.perf_counter_ns()))


def _with_loaded(reply: Reply, files: ProjectFiles, began_ns: int) -> Reply:
    """Add which files of the project were loaded since the previous reply, and the time to find
    them.
    """
    loaded = files.take_new()
    spent_ns = time.perf_counter_ns() - began_ns
    return reply.model_copy(update={"loaded": loaded, "tracing_ns": spent_ns})


def _exit_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)
    os._exit(1)


def _set_up_process(settings: WorkerSettings, device: str) -> None:
    if settings.cache_folder is not None:
        os.environ["TRITON_CACHE_DIR"] = f"{settings.cache_folder}/triton"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{settings.cache_folder}/inductor"
        # torch names an extension's folder by the extension alone, which both sides have
        os.environ["TORCH_EXTENSIONS_DIR"] = f"{settings.cache_folder}/extensions"
    if settings.thread_count is not None:
        torch.set_num_threads(settings.thread_count)
    if device == "cpu":
        _limit_memory(settings.memory_share)
        keep_freed_memory()


def _limit_memory(share: float) -> None:
    """Make allocations beyond this process's share of memory fail before the system kills a
    process.
    """
    available_bytes = _available_memory_bytes()
    if available_bytes is None:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + int(available_bytes * _MEMORY_SHARE * share)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def _available_memory_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    limits_bytes = [
        int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")
    ]
    group = Path("/sys/fs/cgroup/memory.max")
    if group.exists() and (text := group.read_text().strip()).isdigit():
        limits_bytes.append(int(text))
    return min(limits_bytes, default=None)


def _load(source: SuiteSource, device: str) -> tuple[KernelSpec, ...]:
    """Load a suite; without a GPU, a second time if a package cannot be imported without one."""
    try:
        return load_suite(source)
    except SuiteError as error:
        if device != "cpu":
            raise
        forget_failed_imports()
        try:
            with pretending_driver(DEFAULT_TARGETS[0]):
                return load_suite(source)
        except SuiteError as pretended_error:
            if isinstance(pretended_error.__cause__, LaunchedAtImportError):
                raise
            raise error from None


class _Suite:
    """The loaded suite, and what its jobs share."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._device = choose_device(settings.device)
        _set_up_process(settings, self._device)
        is_interpreter = settings.mode is Mode.INTERPRETER
        self._interpreter_defect = interpreter_defect() if is_interpreter else None
        self.preloaded = frozenset(sys.modules)
        """Modules that were loaded before the suite."""
        self._specs = _load(settings.source, self._device)
        self._modules = frozenset(sys.modules) - self.preloaded
        if settings.mode is Mode.INTERPRETER:
            self._launch_device = "cpu"
        else:
            self._launch_device = self._device
        self._ranks = Ranks(settings.rank, self._device)
        self._checks = CheckCache()
        self._autotuning = AutotuneRecorder()
        self._compiled: dict[tuple[str, str], Callable[..., Any]] = {}
        self._has_timed = False

    def describe(self) -> SuiteInfo:
        repository = repository_of(self._settings.source)
        return SuiteInfo(
            device=self._device,
            kernels=tuple(describe_kernel(spec, repository) for spec in self._specs),
        )

    def do(self, job: Job) -> Reply:
        if isinstance(job, DescribeSources):
            source = self._settings.source
            folders = (*source.builds, *filter(None, [source.root]))
            project = ProjectPackages(installed_names(source), folders)
            specs = [
                spec for spec in self._specs if job.kernels is None or spec.name in job.kernels
            ]
            digests = source_digests(specs, self._modules, project)
            return Reply(
                source_digests={name: digest.everything for name, digest in digests.items()},
                host_digests={name: digest.host for name, digest in digests.items()},
            )
        if isinstance(job, DescribeEnvironment):
            return Reply(
                environment=collect_environment(self._device), device_uuid=device_uuid(self._device)
            )
        if isinstance(job, MeasureCeilings):
            with timing_stream(self._device):
                return Reply(ceilings=tuple(measure_ceilings(self._device, job.dtypes, job.timer)))
        if isinstance(job, ChooseTiming):
            try:
                return Reply(chosen=choose_method(self._device, job.timer, job.cache))
            except TimerError as error:
                return Reply(error=str(error))
        spec, case, implementation = find_case(self._specs, job.case_id, job.implementation)
        if isinstance(job, CompileStatic):
            limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
            facts = compile_case(
                spec=spec,
                implementation=implementation,
                case=case,
                targets=job.targets,
                time_limit_s=limit_s,
            )
            return Reply(static_facts=tuple(facts))
        if isinstance(job, CompileAhead):
            compile_ahead(
                spec=spec,
                implementation=implementation,
                case=case,
                target=job.target,
                launch=self._launcher(spec, implementation),
                device=self._device,
            )
            return Reply()
        if isinstance(job, CompileConfigurations):
            configured = compile_configurations(
                spec=spec,
                implementation=implementation,
                case=case,
                target=job.target,
                configurations=job.configurations or implementation.configs,
            )
            return Reply(configured=configured)
        if isinstance(job, ProveCase):
            return Reply(
                proof=prove_case(
                    spec=spec,
                    implementation=implementation,
                    case=case,
                    target=job.target,
                )
            )
        self._join_ranks(spec, case)
        if job.configuration:
            launch = partial(implementation.launch, **job.configuration)
            implementation = replace(implementation, launch=launch)
        # a function of torch or CUDA C++ has no autotuner
        if implementation.language is not Language.TRITON:
            return self._call(spec, case, implementation, job)
        with pinning(job.pinned) as pinned:
            reply = self._call(spec, case, implementation, job)
        if reply.block is None:
            return reply
        autotuning = (*reply.block.autotuning, *pinned)
        return reply.model_copy(
            update={"block": reply.block.model_copy(update={"autotuning": autotuning})}
        )

    def _call(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        job: CalledJob,
    ) -> Reply:
        """Do a job that calls the implementation."""
        if isinstance(job, CheckAccuracy):
            return self._check(spec, case, implementation, job)
        if isinstance(job, PrepareCall):
            with self._watch_autotuner(implementation) as tuned:
                call = prepare_call(
                    launch=self._launcher(spec, implementation),
                    spec=spec,
                    case=case,
                    device=self._device,
                )
                call()
            return Reply(autotuning=tuple(tuned))
        if isinstance(job, ProfileCalls):
            return self._profile(spec, case, implementation)
        return self._time(spec, case, implementation, job)

    def _join_ranks(self, spec: KernelSpec, case: Case) -> None:
        needed = spec.rank_count(case)
        count = self._ranks.count
        if needed != count:
            raise UnsupportedError(f"needs {needed} ranks, and this process is one of {count}")
        self._ranks.join()

    def _watch_autotuner(
        self, implementation: Implementation
    ) -> AbstractContextManager[list[Autotuning]]:
        is_tuned = implementation.language is Language.TRITON and self._settings.mode is Mode.DEVICE
        if is_tuned:
            return self._autotuning.watching()
        return nullcontext([])

    def _launcher(self, spec: KernelSpec, implementation: Implementation) -> Callable[..., Any]:
        """What to call; compiled once per process if it goes through torch.compile."""
        if not implementation.is_compiled:
            return implementation.launch
        key = (spec.name, implementation.name)
        if key not in self._compiled:
            self._compiled[key] = compiled(implementation)
        return self._compiled[key]

    def _check(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        job: CheckAccuracy,
    ) -> Reply:
        if self._interpreter_defect is not None and implementation.language is Language.TRITON:
            report = CheckReport(
                case_id=case.id,
                implementation=implementation.name,
                executor="interpreter",
                layout=job.layout,
                regime=job.regime,
                outcome=Outcome.UNSUPPORTED,
                message=self._interpreter_defect,
                interpreter_defect=self._interpreter_defect,
            )
            return Reply(checked=Checked(report=report))
        if self._settings.mode is Mode.INTERPRETER and not job.is_exact:
            case = spec.interpreted_case(case)
        check = partial(
            check_case,
            spec=spec,
            case=case,
            implementation=implementation,
            cache=self._checks,
            launch=self._launcher(spec, implementation),
            device=self._launch_device,
            as_on_gpu=partial(as_on_gpu, DEFAULT_TARGETS[0]),
        )
        with self._watch_autotuner(implementation):
            report = check(layout=job.layout, regime=job.regime)
        is_varied = job.layout is not None or job.regime is not None
        if is_varied or report.outcome is not Outcome.OK or case in spec.edges:
            return Reply(checked=Checked(report=report))
        prepared = self._checks.prepare(spec, case, self._launch_device)
        # the torch implementation decides which values are fair to the others
        is_baseline = implementation.name == BASELINE_NAME
        regimes = () if is_baseline else regimes_of(prepared)
        errors: list[TensorError] = []
        for regime in regimes if job.with_regimes else ():
            with suppress(Exception):  # a user's code; the declared values decide the outcome
                errors += check(regime=regime).errors()
        checked = Checked(
            report=report,
            layouts=layouts_of(prepared),
            regimes=regimes,
            errors=tuple(errors),
        )
        return Reply(checked=checked)

    def _time(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        job: TimeBlock,
    ) -> Reply:
        self._checks.free()
        if not self._has_timed:  # later collections before each block skip what is loaded by now
            gc.collect()
            gc.freeze()
            self._has_timed = True
        launcher = self._launcher(spec, implementation)
        make_call = partial(prepare_call, launcher, spec, case, self._device)
        with timing_stream(self._device):
            floor = memory_floor(self._device)
            with self._watch_autotuner(implementation) as tuned:
                call = make_call()
                if implementation.language is Language.TRITON or implementation.is_compiled:
                    call()  # compiles and tunes now, not during the warm-up
            memory = None if floor is None else measure_memory(call, floor)
            timed = sample_launches(
                call,
                job.plan,
                device=self._device,
                method=job.method,
                launches_per_sample=job.launches_per_sample,
                ranks=self._ranks,
                copies=Copies(
                    partial(another_call, make_call), touched_bytes=float(spec.memory_bytes(case))
                ),
            )
        return Reply(block=timed.model_copy(update={"memory": memory, "autotuning": tuple(tuned)}))

    def _profile(self, spec: KernelSpec, case: Case, implementation: Implementation) -> Reply:
        self._checks.free()
        launcher = self._launcher(spec, implementation)
        with timing_stream(self._device):
            call = prepare_call(
                launch=launcher,
                spec=spec,
                case=case,
                device=self._device,
            )
            profile = profile_calls(
                call,
                self._device,
                case_id=case.id,
                implementation=implementation.name,
                # torch's counters would run a compiled step eagerly
                counts_operators=not implementation.is_compiled,
                counts_flop=spec.family == WORKLOADS and implementation.name == "torch",
            )
        return Reply(profile=profile)
