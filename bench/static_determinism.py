"""Compile a whole suite twice from cold caches, with other numbers of workers, and say which facts differ.

    python bench/static_determinism.py [KERNEL ...]

Exit status 1 if any does; compile times, which do differ, are left out.
"""

from __future__ import annotations

import sys
import time

from roofwatch.collector.compile.static_run import compile_suite
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteSource


def facts_by_key(kernels: tuple[str, ...], worker_count: int) -> dict[tuple[str, ...], StaticFacts]:
    """Compile everything anew; more workers take the cases in another order."""
    plan = RunPlan(kernels=kernels, usual_tag="quick", device="cpu")
    started = time.monotonic()
    facts = compile_suite(SuiteSource(), plan, use_cache=False, worker_count=worker_count)
    print(f"{len(facts)} facts, {worker_count} worker(s): {time.monotonic() - started:.0f} s")
    return {
        (fact.case_id, fact.implementation, fact.function, fact.target): fact.model_copy(update={"compile_ns": {}})
        for fact in facts
    }


def main() -> int:
    """Compile twice, compare, and print what differs."""
    kernels = tuple(sys.argv[1:]) or ("*",)
    first, second = facts_by_key(kernels, 1), facts_by_key(kernels, 3)
    differing = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    for key in differing:
        print("differs:", *key)
    print(f"{len(differing)} of {len(first)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
