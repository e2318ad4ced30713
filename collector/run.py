"""Measure a suite: one commit alone, or two commits against each other with their blocks interleaved."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from collector.nursery import Nursery
from collector.protocol import Mode
from collector.record import Pairing, RunRecord, Side
from collector.revision import SuiteAt
from collector.suite_run import RunPlan, Subject, SuiteRun
from collector.workers import Workers


@dataclass(frozen=True)
class Progress:
    done: int
    total: int
    """Steps known so far; grows once the suite has been read."""
    text: str


OnProgress = Callable[[Progress], None]


class _Steps:
    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._done = 0
        self.total = 0

    def say(self, text: str) -> None:
        self._on_progress(Progress(self._done, self.total, text))

    def step(self, text: str) -> None:
        self._done += 1
        self.say(text)


def collect_run(
    suite: SuiteAt, plan: RunPlan, on_progress: OnProgress = lambda _: None, *, nursery: Nursery
) -> RunRecord:
    """Check, compile and time a suite at one commit.

    Compiling and the interpreter's checks run side by side; nothing else runs while something is timed.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: the machine cannot be measured.
    """
    steps = _Steps(on_progress)
    run = SuiteRun(suite.source, plan)
    with _device_workers(nursery, run) as workers, _interpreter(nursery, run) as interpreter:
        steps.say("loading the suite")
        _begin(run, workers, interpreter)
        steps.total = len(run.to_compile) + len(run.to_interpret) + len(run.to_check) * (1 + plan.block_count)
        _compile_and_check(run, workers, interpreter, steps)
        for _ in range(plan.block_count):
            for subject in run.to_time:
                run.take_block(workers, subject)
                steps.step(f"timed {subject}")
    return run.record(suite.commit, suite.project)


def measure_pair(
    base: SuiteAt,
    head: SuiteAt,
    plan: RunPlan,
    *,
    nursery: Nursery,
    only: frozenset[Subject] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> tuple[RunRecord, RunRecord]:
    """Measure two commits in one job on one device, so that drift and clocks cancel.

    Every block of every side comes from a fresh process; the two sides of a block run right after each other, in an
    order drawn at random. What one side alone has is measured on that side alone.

    Args:
        base: What to compare against.
        head: What is new.
        plan: `block_count` is the number of blocks on each side.
        nursery: Forks the workers.
        only: Time these; all that both commits can run if left out.
        on_progress: Called after every step.

    Returns:
        The records of base and head; block i of the one ran next to block i of the other.

    Raises:
        SuiteError: a suite cannot be loaded, or nothing in it matches the plan.
        CollectorError: the machine cannot be measured.
    """
    steps = _Steps(on_progress)
    steps.say("loading torch and Triton")
    nursery.warm_up()
    pair_id = uuid.uuid4()
    order = random.Random(pair_id.int)  # noqa: S311  an order to measure in, no secret
    runs = {
        Side.BASE: SuiteRun(base.source, plan),
        Side.HEAD: SuiteRun(head.source, plan),
    }
    for side, run in runs.items():
        with _device_workers(nursery, run) as workers, _interpreter(nursery, run) as interpreter:
            steps.say(f"loading the suite of the {side}")
            _begin(run, workers, interpreter)
            steps.total += len(run.to_compile) + len(run.to_interpret) + len(run.to_check)
            _compile_and_check(run, workers, interpreter, steps)
    steps.total += plan.block_count * sum(len(_chosen(run, only)) for run in runs.values())
    for _ in range(plan.block_count):
        _take_interleaved_blocks(nursery, runs, only, order, steps)
    return (
        runs[Side.BASE].record(base.commit, base.project, Pairing(pair_id=pair_id, side=Side.BASE)),
        runs[Side.HEAD].record(head.commit, head.project, Pairing(pair_id=pair_id, side=Side.HEAD)),
    )


def _take_interleaved_blocks(
    nursery: Nursery, runs: dict[Side, SuiteRun], only: frozenset[Subject] | None, order: random.Random, steps: _Steps
) -> None:
    with (
        _device_workers(nursery, runs[Side.BASE]) as base,
        _device_workers(nursery, runs[Side.HEAD]) as head,
        ThreadPoolExecutor(2) as pool,
    ):
        workers = {Side.BASE: base, Side.HEAD: head}
        for started in [pool.submit(worker.start) for worker in workers.values()]:
            started.result()
        subjects = sorted({subject for run in runs.values() for subject in _chosen(run, only)})
        order.shuffle(subjects)
        for subject in subjects:
            sides = list(Side)
            order.shuffle(sides)
            for side in sides:
                if subject in runs[side].to_time:
                    # a sample means the same on both sides: the first one to be timed decides
                    chosen = (run.launches_per_sample(subject) for run in runs.values())
                    runs[side].take_block(workers[side], subject, next(filter(None, chosen), None))
                    steps.step(f"timed {subject} on the {side}")


def _begin(run: SuiteRun, workers: Workers, interpreter: Workers) -> None:
    """Load the suite, then measure the machine while nothing else runs."""
    with ThreadPoolExecutor(1) as pool:
        # where no GPU will do its work the interpreter is needed: load it meanwhile
        loading = pool.submit(interpreter.start) if run.plan.device == "cpu" else None
        run.select(workers.start())
        if loading is not None:
            loading.result()
    run.describe_machine(workers)


def _compile_and_check(run: SuiteRun, workers: Workers, interpreter: Workers, steps: _Steps) -> None:
    with ThreadPoolExecutor(1) as pool:
        interpreting = pool.submit(run.check, interpreter, run.to_interpret, steps.step)
        run.compile(workers, steps.step)
        interpreting.result()
    interpreter.stop()
    run.check(workers, run.to_check, steps.step)


def _chosen(run: SuiteRun, only: frozenset[Subject] | None) -> list[Subject]:
    return [subject for subject in run.to_time if only is None or subject in only]


def _device_workers(nursery: Nursery, run: SuiteRun) -> Workers:
    return Workers(nursery, run.source, Mode.DEVICE, device=run.plan.device, thread_count=run.plan.thread_count)


def _interpreter(nursery: Nursery, run: SuiteRun) -> Workers:
    return Workers(nursery, run.source, Mode.INTERPRETER, device="cpu")
