"""The jobs of a loaded suite: compiling, checking, timing and profiling its cases."""

import gc
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from roofwatch.collector.accuracy.baseline import BASELINE_NAME, CheckCache
from roofwatch.collector.accuracy.check import check_case
from roofwatch.collector.accuracy.corrected_interpreter import interpreter_defect
from roofwatch.collector.accuracy.layouts import layouts_of
from roofwatch.collector.accuracy.regimes import regimes_of
from roofwatch.collector.autotune import AutotuneRecorder
from roofwatch.collector.build.provenance import installed_names
from roofwatch.collector.compile.pretended_device import as_on_gpu
from roofwatch.collector.compile.proof import prove_for_first_target
from roofwatch.collector.compile.sources import (
    ProjectPackages,
    implementation_digests,
    source_digests,
)
from roofwatch.collector.compile.static import compile_case
from roofwatch.collector.compile.target_device import LaunchedAtImportError, pretending_driver
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.environment import collect_environment, device_uuid
from roofwatch.collector.jobs.ahead import compile_ahead
from roofwatch.collector.jobs.case_call import another_call, compiled, prepare_call
from roofwatch.collector.jobs.configurations import compile_configurations
from roofwatch.collector.jobs.kernel_info import describe_kernel, find_case, repository_of
from roofwatch.collector.pinning import pinning
from roofwatch.collector.profiling.case_profile import profile_calls
from roofwatch.collector.suite import forget_failed_imports, load_suite
from roofwatch.collector.timing.memory import Copies, measure_memory, memory_floor
from roofwatch.collector.timing.stopwatch import Ranks
from roofwatch.collector.timing.timing import choose_method, sample_launches, timing_stream
from roofwatch.model.check_report import CheckReport
from roofwatch.model.errors import SuiteError, TimerError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Autotuning
from roofwatch.model.regime import Regime
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

CalledJob = CheckAccuracy | PrepareCall | ProfileCalls | TimeBlock
"""Jobs that call the implementation."""
CompiledJob = CompileStatic | CompileAhead | CompileConfigurations | ProveCase
"""Jobs that compile it."""


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


class SuiteJobs:
    """The loaded suite, and what its jobs share."""

    def __init__(self, settings: WorkerSettings, device: str) -> None:
        self._settings = settings
        self._device = device
        is_interpreter = settings.mode is Mode.INTERPRETER
        self._interpreter_defect = None
        if is_interpreter:
            self._interpreter_defect = interpreter_defect()
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
        """Kernels with their cases and implementations."""
        repository = repository_of(self._settings.source)
        return SuiteInfo(
            device=self._device,
            kernels=tuple(describe_kernel(spec, repository) for spec in self._specs),
        )

    def do(self, job: Job) -> Reply:
        """Do one job; what a user's code raises is raised here."""
        if isinstance(job, DescribeSources):
            return self._describe_sources(job)
        if isinstance(job, DescribeEnvironment):
            return Reply(
                environment=collect_environment(self._device),
                device_uuid=device_uuid(self._device),
            )
        if isinstance(job, MeasureCeilings):
            with timing_stream(self._device):
                ceilings = measure_ceilings(self._device, job.dtypes, job.timer)
                return Reply(ceilings=tuple(ceilings))
        if isinstance(job, ChooseTiming):
            try:
                chosen = choose_method(self._device, job.timer, job.cache)
            except TimerError as error:
                return Reply(error=str(error))
            return Reply(chosen=chosen)
        spec, case, implementation = find_case(self._specs, job.case_id, job.implementation)
        if isinstance(job, CalledJob):
            return self._do_called(
                spec=spec,
                case=case,
                implementation=implementation,
                job=job,
            )
        return self._do_compiled(
            spec=spec,
            case=case,
            implementation=implementation,
            job=job,
        )

    def _describe_sources(self, job: DescribeSources) -> Reply:
        """Digests of the code that kernels use, and of single implementations if asked for."""
        source = self._settings.source
        folders = list(source.builds)
        if source.root is not None:
            folders.append(source.root)
        project = ProjectPackages(installed_names(source), tuple(folders))
        specs = self._specs
        if job.kernels is not None:
            specs = tuple(spec for spec in specs if spec.name in job.kernels)
        digests = source_digests(specs, self._modules, project)
        of_implementations: dict[str, str] = {}
        if job.of_implementations:
            of_implementations = implementation_digests(specs, self._modules, project)
        return Reply(
            implementation_digests=of_implementations,
            source_digests={name: digest.everything for name, digest in digests.items()},
            host_digests={name: digest.host for name, digest in digests.items()},
        )

    def _do_compiled(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        job: CompiledJob,
    ) -> Reply:
        """Do a job that compiles the implementation and takes no time of it."""
        if isinstance(job, CompileStatic):
            limit_s = math.inf
            if job.time_limit_s is not None:
                limit_s = job.time_limit_s
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
        proof = prove_for_first_target(
            spec=spec,
            implementation=implementation,
            case=case,
            targets=job.targets,
        )
        return Reply(proof=proof)

    def _do_called(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        job: CalledJob,
    ) -> Reply:
        """Do a job that calls the implementation, with the configurations that it pins."""
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
        # what was pinned was not tuned, but belongs to the block all the same
        autotuning = (*reply.block.autotuning, *pinned)
        block = reply.block.model_copy(update={"autotuning": autotuning})
        return reply.model_copy(update={"block": block})

    def _call(
        self,
        spec: KernelSpec,
        case: Case,
        implementation: Implementation,
        job: CalledJob,
    ) -> Reply:
        """Do a job that calls an implementation."""
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
        """Join the process group of a case, which must have as many ranks."""
        needed = spec.rank_count(case)
        count = self._ranks.count
        if needed != count:
            raise UnsupportedError(f"needs {needed} ranks, and this process is one of {count}")
        self._ranks.join()

    def _watch_autotuner(
        self, implementation: Implementation
    ) -> AbstractContextManager[list[Autotuning]]:
        """Collect what Triton's autotuner chooses on a device."""
        is_triton = implementation.language is Language.TRITON
        is_on_device = self._settings.mode is Mode.DEVICE
        if is_triton and is_on_device:
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
        """Check a case, unless the interpreter is known to be wrong."""
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
        regimes: tuple[Regime, ...] = ()
        if not is_baseline:
            regimes = regimes_of(prepared)
        errors: list[TensorError] = []
        if job.with_regimes:
            for regime in regimes:
                # a user's code may fail; the declared values decide the outcome
                with suppress(Exception):
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
        """Time one block, with memory freed and everything compiled before the warm-up."""
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
            memory = None
            if floor is not None:
                memory = measure_memory(call, floor)
            # copies take turns where a launch must not find its data in the cache
            copies = Copies(
                partial(another_call, make_call),
                touched_bytes=float(spec.memory_bytes(case)),
            )
            timed = sample_launches(
                launch=call,
                plan=job.plan,
                device=self._device,
                method=job.method,
                launches_per_sample=job.launches_per_sample,
                ranks=self._ranks,
                copies=copies,
            )
        block = timed.model_copy(update={"memory": memory, "autotuning": tuple(tuned)})
        return Reply(block=block)

    def _profile(self, spec: KernelSpec, case: Case, implementation: Implementation) -> Reply:
        """Profile some calls, away from timed blocks."""
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
                call=call,
                device=self._device,
                case_id=case.id,
                implementation=implementation.name,
                # torch's counters would run a compiled step eagerly
                counts_operators=not implementation.is_compiled,
                counts_flop=spec.family == WORKLOADS and implementation.name == "torch",
            )
        return Reply(profile=profile)
