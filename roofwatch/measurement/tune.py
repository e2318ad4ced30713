"""Find the fastest configuration of each case: compile all, drop what cannot win, time the rest."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from roofwatch.ci.tuning.pruning import choose_predicted, prune
from roofwatch.ci.tuning.race import Race
from roofwatch.collector.runs.case_run import CaseRun, select
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan, Steps
from roofwatch.collector.runs.static_compiler import compilers
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.configuration.arguments import suite_source
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Environment, Outcome
from roofwatch.model.measurement import Autotuning
from roofwatch.model.timing_method import SamplingPlan, TimingMethod
from roofwatch.model.tuning import ConfiguredCode, Loss, TriedConfiguration, TunedCase
from roofwatch.model.worker_protocol import (
    CheckAccuracy,
    ChooseTiming,
    CompileConfigurations,
    DescribeEnvironment,
    Reply,
    TimeBlock,
    WorkerSettings,
    machine_error,
)

_BLOCK = SamplingPlan(warmup_ms=5.0, budget_ms=30.0, min_samples=6, max_samples=300)
_MOST_ROUNDS = 40
_TIMEOUT_S = 60.0
"""To describe the machine and choose a timer."""


class TuneError(CollectorError):
    """There is nothing to choose from."""


@dataclass(frozen=True)
class TuneResult:
    cases: tuple[TunedCase, ...]
    environment: Environment
    failures: tuple[str, ...]
    """Cases that could not be compiled at all, with the reason."""


def tune(
    path: Path | None,
    plan: RunPlan,
    on_progress: OnProgress,
    *,
    budget_s: float,
    timeout_s: float = 300.0,
) -> TuneResult:
    """Choose a configuration for each selected case that has several.

    On a GPU, code is compiled for that GPU alone. Without one, Triton and CUDA C++ kernels are
    ranked by the cycle model for each target of the plan, and torch code is timed on the CPU.

    Args:
        path: The suite; None for the bundled one.
        plan: Selects the cases, the device and the targets.
        on_progress: Told what is done.
        budget_s: Time for the rounds of one case.
        timeout_s: Of one check, compilation or block.

    Raises:
        TuneError: nothing that was selected has several configurations.
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: the machine cannot be measured.
    """
    source = suite_source(path)
    steps = Steps(on_progress)
    with ExitStack() as stack:
        fork_server = stack.enter_context(ForkServer())
        settings = WorkerSettings(source=source, device=plan.device, thread_count=plan.thread_count)
        workers = stack.enter_context(WorkerPool(fork_server, settings))
        steps.say("loading the suite")
        runs = [run for run in select(workers.start(), plan) if _may_be_tuned(run)]
        tuner = _Tuner(
            workers=workers,
            compilers=stack.enter_context(compilers(fork_server, source)),
            plan=plan,
            steps=steps,
            budget_s=budget_s,
            timeout_s=timeout_s,
        )
        steps.total = len(runs)
        cases: list[TunedCase] = []
        for run in runs:
            cases += tuner.tune(run)
            steps.step()
    if not cases and not tuner.failures:
        raise TuneError(
            "nothing to choose from: give configs= to spec.implementation(...), or decorate the "
            "kernel with @triton.autotune and two or more configurations"
        )
    return TuneResult(
        cases=tuple(cases),
        environment=tuner.environment,
        failures=tuple(tuner.failures),
    )


def _may_be_tuned(run: CaseRun) -> bool:
    implementation = run.implementation
    # torch.compile has a tuner of its own
    if implementation.is_compiled:
        return False
    return bool(implementation.configs) or implementation.language == "triton"


@dataclass(frozen=True)
class _Entrant:
    """A configuration on its way through the race, by its position."""

    index: int
    function: str | None
    tried: TriedConfiguration

    def job_fields(self, run: CaseRun) -> dict[str, object]:
        """What makes a job use the configuration."""
        fields: dict[str, object] = {**run.subject.named, "rank_count": run.rank_count}
        configuration = self.tried.configuration
        if self.function is None:
            fields["configuration"] = configuration
        else:
            choice = Autotuning(function=self.function, chosen=configuration, is_pinned=True)
            fields["pinned"] = (choice,)
        return fields


class _Tuner:
    """The workers of one suite, and the machine that they run on."""

    def __init__(
        self,
        *,
        workers: WorkerPool,
        compilers: WorkerPool,
        plan: RunPlan,
        steps: Steps,
        budget_s: float,
        timeout_s: float,
    ) -> None:
        self._workers = workers
        self._compilers = compilers
        self._plan = plan
        self._steps = steps
        self._budget_s = budget_s
        self._timeout_s = timeout_s
        self._method: TimingMethod | None = None
        self.failures: list[str] = []
        reply = workers.request(DescribeEnvironment(), timeout_s=_TIMEOUT_S)
        if reply.environment is None:
            raise machine_error("the machine cannot be described", reply.failure, str(plan.device))
        self.environment = reply.environment

    def tune(self, run: CaseRun) -> Iterator[TunedCase]:
        """Choose for one case: for each target, and for each autotuned function."""
        if run.implementation.language == "torch":
            codes = [
                ConfiguredCode(configuration=configuration)
                for configuration in run.implementation.configs
            ]
            tried = [TriedConfiguration(configuration=code.configuration) for code in codes]
            yield self._race(run, None, None, tried)
            return
        for target in self._targets(run):
            self._steps.say(f"compiling {run.subject} for {target}")
            job = CompileConfigurations(**run.subject.named, target=target)
            reply = self._compilers.request(job, timeout_s=self._timeout_s)
            if reply.configured is None:
                self.failures.append(f"{run.subject} on {target}: {_why(reply)}")
                continue
            for function, codes in _by_function(reply.configured).items():
                # a single configuration is no choice
                if len(codes) < 2:
                    continue
                if run.runs_here:
                    yield self._race(run, function, target, prune(codes))
                else:
                    yield _case(run, function, target=target, tried=choose_predicted(codes))

    def _targets(self, run: CaseRun) -> tuple[str, ...]:
        own_target = self.environment.compile_target
        if run.runs_here and own_target is not None:
            return (own_target,)
        return self._plan.targets

    def _race(
        self,
        run: CaseRun,
        function: str | None,
        target: str | None,
        tried: Sequence[TriedConfiguration],
    ) -> TunedCase:
        """Check and time what has no loss yet."""
        entrants = [
            _Entrant(index, function, configuration)
            for index, configuration in enumerate(tried)
            if configuration.loss is None
        ]
        losses: dict[int, tuple[Loss, str]] = {}
        for entrant in entrants:
            self._steps.say(f"checking {run.subject} {entrant.tried.configuration}")
            reply = self._workers.request(
                CheckAccuracy.model_validate(entrant.job_fields(run)), timeout_s=self._timeout_s
            )
            wrong = _what_is_wrong(reply)
            if wrong is not None:
                losses[entrant.index] = (Loss.FAILED, wrong)
        race = Race([entrant.index for entrant in entrants if entrant.index not in losses])
        deadline_s = time.monotonic() + self._budget_s
        order = random.Random(0)  # noqa: S311  no secret
        ending = ""
        while not race.is_over and not ending:
            self._steps.say(
                f"{run.subject}: round {race.round_count + 1}, {len(race.remaining)} left"
            )
            samples: dict[int, Sequence[float]] = {}
            # no configuration always follows the same one
            for index in order.sample(race.remaining, len(race.remaining)):
                reply = self._time(run, _Entrant(index, function, tried[index]))
                if reply.block is None:
                    losses[index] = (Loss.FAILED, _why(reply))
                else:
                    samples[index] = reply.block.block.samples_ns
            race.add_round(samples)
            if race.round_count >= _MOST_ROUNDS:
                ending = f"undecided after {_MOST_ROUNDS} rounds"
            elif time.monotonic() > deadline_s:
                ending = f"undecided after {self._budget_s:.0f} s (--budget)"
        for index, dropped in race.dropped.items():
            losses[index] = (Loss.SLOWER, dropped.in_words)
        for index in race.remaining:
            if index != race.leader:
                losses[index] = (Loss.TIED, "no slower, as far as can be told")
        timed = [
            _timed(configuration, race, index, losses.get(index))
            for index, configuration in enumerate(tried)
        ]
        is_measured = race.leader is not None and race.round_count > 0
        return _case(
            run,
            function,
            target=target,
            tried=sorted(timed, key=_order),
            device=self.environment.device_name if is_measured else None,
            ending=ending,
        )

    def _time(self, run: CaseRun, entrant: _Entrant) -> Reply:
        if self._method is None:
            job = ChooseTiming(timer=self._plan.timer, cache=self._plan.cache)
            reply = self._workers.request(job, timeout_s=_TIMEOUT_S)
            if reply.chosen is None:
                raise CollectorError(reply.error or _why(reply))
            self._method = reply.chosen.method
        fields = {**entrant.job_fields(run), "plan": _BLOCK, "method": self._method}
        return self._workers.request(TimeBlock.model_validate(fields), timeout_s=self._timeout_s)


def _by_function(
    configured: Sequence[ConfiguredCode],
) -> dict[str | None, list[ConfiguredCode]]:
    by_function: dict[str | None, list[ConfiguredCode]] = {}
    for code in configured:
        by_function.setdefault(code.function, []).append(code)
    return by_function


def _why(reply: Reply) -> str:
    if reply.failure is None:
        return reply.error or "no answer"
    return f"{reply.failure.outcome}: {reply.failure.message}"


def _what_is_wrong(reply: Reply) -> str | None:
    """What a check says against a configuration; None if it passed."""
    if reply.checked is None:
        return _why(reply)
    report = reply.checked.report
    if report.outcome is Outcome.OK:
        return None
    return report.message or str(report.outcome)


def _timed(
    tried: TriedConfiguration,
    race: Race[int],
    index: int,
    loss: tuple[Loss, str] | None,
) -> TriedConfiguration:
    update: dict[str, object] = {}
    if loss is not None:
        update = {"loss": loss[0], "detail": loss[1]}
    if index in race.blocks:
        update["median_ns"] = race.median_ns(index)
        update["block_count"] = len(race.blocks[index])
    return tried.model_copy(update=update)


def _order(tried: TriedConfiguration) -> tuple[bool, bool, float]:
    """The chosen one first, then by time; what was not timed last, by prediction."""
    is_timed = tried.median_ns is not None
    time_ns = tried.median_ns or tried.predicted_ns or float("inf")
    return tried.loss is not None, not is_timed, time_ns


def _case(
    run: CaseRun,
    function: str | None,
    *,
    target: str | None,
    tried: Sequence[TriedConfiguration],
    device: str | None = None,
    ending: str = "",
) -> TunedCase:
    evidence = "predicted" if device is None else "measured"
    if not any(configuration.loss is None for configuration in tried):
        evidence = "none"
    return TunedCase.model_validate(
        {
            "case_id": run.case.case_id,
            "kernel": run.case.kernel,
            "shape": run.case.shape,
            "dtype": run.case.dtype,
            "direction": run.case.direction,
            "implementation": run.implementation.name,
            "function": function,
            "device": device,
            "target": target,
            "evidence": evidence,
            "ending": ending,
            "tried": tuple(tried),
        }
    )
