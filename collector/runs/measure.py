"""Measure a suite at one commit, or at two commits with interleaved blocks."""

import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from roofwatch.collector.device.device_session import DeviceSession
from roofwatch.collector.runs.ahead import compile_ahead
from roofwatch.collector.runs.countdown import Countdown
from roofwatch.collector.runs.journal import Journal
from roofwatch.collector.runs.run_plan import Activity, OnProgress, RunPlan, Steps
from roofwatch.collector.runs.suite_run import SuiteRun
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import Feature, ForkServer
from roofwatch.collector.workers.worker_pool import WorkerPool
from roofwatch.model.machine import Telemetry, highest_ceilings
from roofwatch.model.measurement import Autotuning
from roofwatch.model.record import PairMember, RunRecord, Side
from roofwatch.model.worker_mode import Mode
from roofwatch.model.worker_protocol import Subject, WorkerSettings

_MAX_PARALLEL_CHECKS = 8


MoreBlocks = Callable[[RunRecord, RunRecord], Mapping[Subject, int]]
"""From the base and head records so far, the number of blocks per side that each undecided subject
needs.
"""

FindCarried = Callable[[RunRecord, RunRecord], frozenset[Subject]]
"""From the compiled and checked base and head, the subjects whose time cannot differ."""


def measure(
    suites: Sequence[SuiteAt],
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    fork_server: ForkServer,
    only: frozenset[Subject] | None = None,
    find_carried: FindCarried = lambda _base, _head: frozenset(),
    more: MoreBlocks = lambda _base, _head: {},
    is_over: Callable[[], bool] = lambda: False,
    journal: Journal | None = None,
    pinned: Mapping[Subject, tuple[Autotuning, ...]] | None = None,
) -> tuple[RunRecord, ...]:
    """Check, compile and time one suite, or two in one job on one device, so that drift and clock
    changes cancel out.

    Nothing else runs while a kernel is timed. Block after block is taken over all subjects, so that
    a disturbance affects all of them. Of a pair, every block comes from a fresh process, and the
    two sides of a block run directly after each other in random order. Each side has its own
    compiler and autotuning cache, empty at the start. A subject of only one side is measured there.
    What `find_carried` returns is not timed.
    After the plan's blocks, and after each interim analysis, `more` returns what else to measure.
    Once `is_over` is true, no block is begun, and the records have what was measured until then.

    Autotuned functions use the choices of `pinned`; of a pair whose plan pins them, both sides use
    the base's.

    The journal stores each result as it arrives. Results of an interrupted run are read from it,
    not measured again; except a block without its other side.

    Returns:
        A record of each suite; block i of the base ran next to block i of the head.

    Raises:
        SuiteError: a suite cannot be loaded, or nothing in any of them matches the plan.
        CollectorError: the machine cannot be measured.
        JournalError: a result cannot be stored, or the run was started on another machine.
    """
    is_pair = len(suites) == 2
    steps = Steps(on_progress)
    if is_pair:
        steps.say("loading torch and Triton")
        fork_server.load("triton")
    pair_id = uuid.uuid4()
    earlier_telemetry: Sequence[Telemetry] = ()
    if journal is not None:
        # A resumed pair keeps its ID.
        pair_id = journal.header.pair_id or pair_id
        earlier_telemetry = journal.seen
    session = DeviceSession(
        lock_mhz=plan.lock_clocks,
        earlier=earlier_telemetry,
        unfit=plan.device_check,
    )
    runs: list[SuiteRun] = []
    with ExitStack() as stack:
        stack.enter_context(session)
        caches = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-caches-")))
        for suite, side in zip(suites, Side, strict=False):
            cache_folder = None
            pairing = None
            if is_pair:
                cache_folder = caches / side
                pairing = PairMember(pair_id=pair_id, side=side)
            settings = WorkerSettings(
                source=suite.source,
                device=plan.device,
                thread_count=plan.thread_count,
                cache_folder=cache_folder,
            )
            workers = stack.enter_context(WorkerPool(fork_server, settings))
            run = SuiteRun(
                suite=suite,
                plan=plan,
                workers=workers,
                session=session,
                steps=steps,
                journal=journal,
                pairing=pairing,
            )
            run.pinned = dict(pinned or {})
            runs.append(run)
            # A new kernel is missing in the base, a removed one in the head.
            has_cases = any(loaded_run.cases for loaded_run in runs)
            run.load(may_be_empty=len(runs) < len(suites) or has_cases)
            _prepare(run, steps)
            # A fresh process times each block of a pair.
            if is_pair:
                workers.stop()
        # Both sides are compared with the same roof.
        shared = highest_ceilings(ceiling for run in runs for ceiling in run.ceilings)
        for run in runs:
            run.ceilings = shared
        _drop_unpaired_blocks(runs)
        carried: frozenset[Subject] = frozenset()
        if is_pair:
            carried = find_carried(*(run.record() for run in runs))
        to_time: dict[Subject, None] = {}
        for run in runs:
            to_time |= dict.fromkeys(run.to_time)
        if only is not None:
            to_time = {subject: None for subject in to_time if subject in only}
        subjects = [subject for subject in to_time if subject not in carried]
        for run in runs:
            run.left_out = frozenset(run.to_time).difference(subjects)
        # Times of other code than the commit's would be worse than none.
        all_foreign = [run.loaded_files.foreign for run in runs]
        foreign = next(filter(None, all_foreign), None)
        if foreign is not None:
            steps.note(f"nothing is timed: {foreign.module} is not the code of the commit")
            subjects = []
        if is_pair and plan.pins_autotuner:
            _pin_autotuner(
                base=runs[0],
                head=runs[1],
                subjects=subjects,
            )
        order = random.Random(pair_id.int)  # noqa: S311  no secret
        planned_blocks = dict.fromkeys(subjects, plan.block_count)
        _take_blocks(
            runs=runs,
            block_counts=planned_blocks,
            steps=steps,
            order=order,
            is_over=is_over,
        )
        _note_unfinished(runs, planned_blocks, steps)
        while is_pair and not is_over():
            is_taken = _take_blocks(
                runs=runs,
                block_counts=more(*(run.record() for run in runs)),
                steps=steps,
                order=order,
                is_over=is_over,
            )
            if not is_taken:
                break
        for run in runs:
            if run.to_profile and not is_over():
                # Fresh processes: the timer may hold the profiling interface.
                for timed_run in runs:
                    timed_run.workers.stop()
                run.profile()
    return tuple(run.record() for run in runs)


def _prepare(run: SuiteRun, steps: Steps) -> None:
    """Do everything between selecting and the first block: measure the machine, check and
    compile.
    """
    fork_server = run.workers.fork_server
    fork_server.finish_start()
    run.describe_machine()
    steps.total += len(run.to_compile) + len(run.to_interpret) + len(run.to_check)
    worker_count = _parallel_check_count(run)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(fork_server.load, *_needed_features(run))
        if run.to_interpret:
            settings = WorkerSettings(
                source=run.suite.source,
                mode=Mode.INTERPRETER,
                device="cpu",
                thread_count=run.plan.thread_count,
            )
            with WorkerPool(fork_server, settings) as interpreter:
                run.check(interpreter, run.to_interpret, worker_count=worker_count)
        with run.spent.on(Activity.START):
            loading.result()
    # not during checks on the device, in which Triton's autotuner times kernels
    run.compile()
    compile_ahead(run, steps)
    run.check(run.workers, run.to_check, worker_count=worker_count)


def _pin_autotuner(base: SuiteRun, head: SuiteRun, subjects: Sequence[Subject]) -> None:
    """Let the base choose once, before anything is timed, and use its choices on both sides."""
    for subject in subjects:
        # what only the head has, it tunes itself
        if subject in base.cases and base.cases[subject].can_be_timed:
            choices = base.choices_of(subject)
            for run in (base, head):
                run.pinned[subject] = choices
    # a fresh process times each block
    base.workers.stop()


def _needed_features(run: SuiteRun) -> list[Feature]:
    """What the workers of a run load before they compile and check."""
    features: list[Feature] = []
    if any(case.case.direction == "bwd" for case in run.cases.values()):
        features.append("backward")
    if any(case.implementation.is_compiled for case in run.to_check):
        if run.is_on_cpu:
            features.append("torch_compile")
        else:
            features.append("torch_compile_beside_gpu")
    return features


def _parallel_check_count(run: SuiteRun) -> int:
    """On a CPU one check per free core, at most eight, as they share the memory. On a GPU one, as
    Triton's autotuner times kernels during a check.
    """
    if not run.is_on_cpu:
        return 1
    cores = len(os.sched_getaffinity(0))
    threads_of_check = run.plan.thread_count or cores
    parallel_count = min(cores // threads_of_check, _MAX_PARALLEL_CHECKS)
    return max(1, parallel_count)


def _drop_unpaired_blocks(runs: Sequence[SuiteRun]) -> None:
    """Drop blocks of an interrupted job whose other side is missing."""
    for subject in set.intersection(*(set(run.to_time) for run in runs)):
        count = min(len(run.cases[subject].blocks) for run in runs)
        for run in runs:
            del run.cases[subject].blocks[count:]


def _take_blocks(
    runs: Sequence[SuiteRun],
    block_counts: Mapping[Subject, int],
    steps: Steps,
    order: random.Random,
    is_over: Callable[[], bool],
) -> bool:
    """Take blocks until every subject has the wanted number, or the time is over; return False if
    none was missing.
    """
    missing_count = 0
    for subject, block_count in block_counts.items():
        for number in range(block_count):
            missing_count += sum(run.lacks_block(subject, number) for run in runs)
    steps.total += missing_count
    countdown = Countdown(missing_count, steps)
    for number in range(max(block_counts.values(), default=0)):
        # asked again: a subject that has failed meanwhile lacks nothing
        missing = [
            subject
            for subject, block_count in block_counts.items()
            if number < block_count and _is_missing(runs, subject, number)
        ]
        if not missing:
            continue
        # In another order for each block, so that no subject always follows the same one.
        if len(runs) > 1:
            order.shuffle(missing)
        began_s = time.monotonic()
        if len(runs) > 1 or runs[0].plan.has_fresh_processes:
            _begin_block(runs, missing, number)
        for subject in missing:
            # both sides of a block were taken
            if is_over():
                return True
            runs[0].cool_down()
            # Which side comes first is random, so that warming up favours neither.
            for run in order.sample(runs, len(runs)):
                if run.lacks_block(subject, number):
                    run.take_block(subject, _launches_per_sample(runs, subject))
                    if len(runs) > 1:
                        countdown.step()
        if len(runs) > 1 and number == 0:
            block_s = time.monotonic() - began_s
            steps.note(_promise(len(missing), runs[0].plan.block_count, block_s=block_s))
    return missing_count > 0


def _begin_block(runs: Sequence[SuiteRun], subjects: Sequence[Subject], number: int) -> None:
    """Start the processes of a block, both sides at once."""
    with runs[0].spent.on(Activity.OVERHEAD), ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(lambda run: run.begin_block(subjects, number), runs))


def _promise(subject_count: int, block_count: int, *, block_s: float) -> str:
    """Say how long the other blocks of a pair take, if each takes as long as the first did."""
    left_s = (block_count - 1) * block_s
    return f"{subject_count} to time, {block_count} blocks per side: about {left_s:.0f} s more"


def _note_unfinished(
    runs: Sequence[SuiteRun],
    block_counts: Mapping[Subject, int],
    steps: Steps,
) -> None:
    """Mark the records of a job whose time was over; what has no block has no measurement."""
    unfinished = [
        subject
        for subject, block_count in block_counts.items()
        if _is_missing(runs, subject, block_count - 1)
    ]
    if not unfinished:
        return
    steps.note(
        f"the time is over: {len(unfinished)} of {len(block_counts)} lack blocks (--stop-after)"
    )
    untimed = {
        subject
        for subject in unfinished
        if _is_missing(
            runs=runs,
            subject=subject,
            number=0,
        )
    }
    for run in runs:
        run.is_partial = True
        run.left_out |= untimed.intersection(run.to_time)


def _is_missing(runs: Sequence[SuiteRun], subject: Subject, number: int) -> bool:
    return any(run.lacks_block(subject, number) for run in runs)


def _launches_per_sample(runs: Sequence[SuiteRun], subject: Subject) -> int | None:
    """Both sides use the launches per sample of the side that is timed first."""
    for run in runs:
        if subject in run.cases and run.cases[subject].launches_per_sample:
            return run.cases[subject].launches_per_sample
    return None
