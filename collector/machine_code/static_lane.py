"""The static layer alone: compile every Triton and CUDA C++ kernel of a suite for every target, and run none.

What was found out before and still holds is taken from the store, and no process is started where that is all. The
rest is compiled by as many workers as there are cores.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collector.machine_code.compiling import Compilation, compile_in_parallel
from collector.machine_code.known_facts import KnownFacts
from collector.machine_code.static_store import StaticStore
from collector.nursery import Nursery
from collector.results import StaticFacts
from collector.run import OnProgress, Progress
from collector.suite_run import RunPlan, SuiteRun
from collector.suite_source import SuiteSource
from collector.worker import Worker


def compile_suite(
    source: SuiteSource,
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    use_cache: bool = True,
    worker_count: int | None = None,
) -> tuple[StaticFacts, ...]:
    """Compile what the plan selects.

    Args:
        source: The suite.
        plan: What of it, and for which targets.
        on_progress: Called after every case.
        use_cache: Believe what was found out or compiled before; else everything is compiled anew.
        worker_count: Processes that compile side by side; one for each core if left out.

    Returns:
        The facts in the order of the suite, whatever was compiled first.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        ToolchainError: a program that belongs to a compiler is not there.
    """
    with _store(use_cache) as (store, environment), Nursery(environment) as nursery, contextlib.ExitStack() as stack:
        run = SuiteRun(source, plan)
        known = KnownFacts(store, source)
        workers = _Workers(nursery, source, stack)
        listing = known.listing()
        if listing is None:
            on_progress(Progress(0, 0, "loading the suite"))
            listing = known.learn_listing(workers.first())
        run.select(listing.info)
        subjects = run.to_compile
        facts = {
            (subject, target): found
            for subject in subjects
            for target in plan.targets
            if (found := known.facts(listing, subject, target)) is not None
        }
        missing = [
            Compilation(subject, targets)
            for subject in subjects
            if (targets := tuple(target for target in plan.targets if (subject, target) not in facts))
        ]
        done = len(subjects) - len(missing)
        if missing:
            on_progress(Progress(done, len(subjects), "compiling"))
            crew = workers.as_many_as(min(len(missing), worker_count or _core_count()))
            for compilation, reply in compile_in_parallel(crew, missing, timeout_s=plan.compile_timeout_s):
                done += 1
                on_progress(Progress(done, len(subjects), f"compiled {compilation.subject}"))
                found_now = known.learn_facts(compilation.subject, compilation.targets, reply)
                facts |= {(compilation.subject, target): found for target, found in found_now.items()}
            store.shrink()
    return tuple(fact for subject in subjects for target in plan.targets for fact in facts[subject, target])


class _Workers:
    """Those that compile, made when they are needed: they bring torch and Triton along."""

    def __init__(self, nursery: Nursery, source: SuiteSource, stack: contextlib.ExitStack) -> None:
        self._nursery = nursery
        self._source = source
        self._stack = stack
        self._made: list[Worker] = []

    def first(self) -> Worker:
        return self.as_many_as(1)[0]

    def as_many_as(self, count: int) -> list[Worker]:
        if not self._made:
            self._nursery.warm_up()
        while len(self._made) < count:
            worker = Worker(self._nursery, self._source, device="cpu", thread_count=1, is_watched=True)
            self._made.append(self._stack.enter_context(worker))
        return self._made[:count]


@contextlib.contextmanager
def _store(use_cache: bool) -> Iterator[tuple[StaticStore, dict[str, str]]]:
    """The store, and what tells workers about it; an empty one that is deleted where none shall be used."""
    if use_cache:
        yield StaticStore.of_user(), {}
        return
    with tempfile.TemporaryDirectory(prefix="roofwatch-static-") as folder:
        caches = {"ROOFWATCH_CACHE_DIR": folder, "TRITON_CACHE_DIR": str(Path(folder) / "triton")}
        yield StaticStore(Path(folder) / "static"), caches


def _core_count() -> int:
    return len(os.sched_getaffinity(0))
