"""Compiles every Triton and CUDA C++ kernel of a suite for every target, and runs none."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roofwatch.collector.compile.cache import DiskCache
from roofwatch.collector.compile.static_compiler import StaticCompiler
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run import OnProgress, Progress
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.suite_run import SuiteRun
from roofwatch.collector.workers.fork_server import ForkServer


def compile_suite(
    source: SuiteSource,
    plan: RunPlan,
    on_progress: OnProgress = lambda _: None,
    *,
    use_cache: bool = True,
    worker_count: int | None = None,
) -> tuple[StaticFacts, ...]:
    """Compile the cases that a plan selects.

    Args:
        source: The suite.
        plan: Cases and targets to compile.
        on_progress: Called after every case.
        use_cache: False compiles everything again and stores nothing.
        worker_count: Number of parallel workers; default one per CPU core.

    Returns:
        The facts in the order of the suite.

    Raises:
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        ToolchainError: a compiler or disassembler is missing.
    """
    with (
        _cache(use_cache) as (cache, environment),
        ForkServer(environment) as fork_server,
        StaticCompiler(
            fork_server, source, cache=cache, worker_count=worker_count, timeout_s=plan.compile_timeout_s
        ) as compiler,
    ):
        run = SuiteRun(source, plan)
        on_progress(Progress(0, 0, "loading the suite"))
        run.select(compiler.load())
        subjects, facts = run.to_compile, {}
        for found in compiler.compile(subjects, plan.targets):
            facts[found.subject] = found.facts
            if not found.was_cached:
                on_progress(Progress(len(facts), len(subjects), f"compiled {found.subject}"))
    return tuple(fact for subject in subjects for fact in facts[subject])


@contextlib.contextmanager
def _cache(use_cache: bool) -> Iterator[tuple[DiskCache, dict[str, str]]]:
    """Yield the user's cache or a temporary one, and environment variables for the workers."""
    if use_cache:
        yield DiskCache.of_user(), {}
        return
    with tempfile.TemporaryDirectory(prefix="roofwatch-static-") as folder:
        caches = {"ROOFWATCH_CACHE_DIR": folder, "TRITON_CACHE_DIR": str(Path(folder) / "triton")}
        yield DiskCache(Path(folder) / "static"), caches
