"""Static facts of a case: compiles what an implementation launches for GPUs that are not present;
runs nothing.
"""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofwatch.collector.compile.autotuned import MOST_CONFIGURATIONS
from roofwatch.collector.compile.binary import amd_resources, machine_code, nvidia_resources
from roofwatch.collector.compile.counted_calls import CountingMode
from roofwatch.collector.compile.dataless import call_for_target, call_with_or_without_data
from roofwatch.collector.compile.estimate import estimate
from roofwatch.collector.compile.instructions import TOTAL, AnalysedCode, analyse_code
from roofwatch.collector.compile.launch import Compiled, Launch, TunedFunction
from roofwatch.collector.compile.launches import compiling_for
from roofwatch.collector.compile.targets import (
    DEFAULT_TARGETS,
    LIMITS,
    parse_target,
    theoretical_occupancy,
)
from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts
from roofwatch.spec import Case, Implementation, KernelSpec, Language

_LAUNCHED = {
    Language.TORCH: "kernel",
    Language.TRITON: "Triton kernel",
    Language.CUDA: "CudaKernel",
}


def compile_case(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    targets: Sequence[str] = DEFAULT_TARGETS,
    *,
    time_limit_s: float = math.inf,
) -> list[StaticFacts]:
    """Compile every function that one call of the case launches, for each target.

    What is not compiled within the time limit has the outcome `timed_out`; the rest is kept.
    For direction `bwd`, only launches of the backward pass count.

    Raises:
        TargetError: a target is unknown.
        ToolchainError: a compiler or disassembler is missing.
        Exception: any exception that the implementation raises outside of a compiler.
    """
    # before anything is compiled: a typing error costs no minutes
    for target in targets:
        parse_target(target)
    deadline_s = time.monotonic() + time_limit_s
    facts: list[StaticFacts] = []
    for target in targets:
        named = {
            "case_id": case.id,
            "implementation": implementation.name,
            "target": target,
        }
        reason = implementation.unsupported_targets.get(target)
        if reason is not None:
            launches = []
        else:
            launches = _distinct(
                _launches(
                    spec=spec,
                    implementation=implementation,
                    case=case,
                    target=target,
                    deadline_s=deadline_s,
                )
            )
        if launches:
            facts += _facts(launches, target, named)
        else:
            if reason is None:
                message = f"launches no {_LAUNCHED[implementation.language]}"
            else:
                message = f"{target} {reason}"
            facts.append(
                StaticFacts(
                    **named,
                    function=implementation.name,
                    outcome=Outcome.UNSUPPORTED,
                    message=message,
                )
            )
    return facts


def compile_autotuned(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
) -> list[tuple[TunedFunction, StaticFacts]]:
    """Compile the autotuned functions of a case in all of their configurations, for one target.

    A function that one call launches in several ways has several facts.

    Raises:
        TargetError: the target is unknown.
        ToolchainError: a compiler or disassembler is missing.
        Exception: any exception that the implementation raises outside of a compiler.
    """
    launches = _distinct(
        _launches(
            spec=spec,
            implementation=implementation,
            case=case,
            target=target,
            most_configurations=None,
        )
    )
    tuned: list[TunedFunction] = []
    compiled: list[Launch] = []
    for launch in launches:
        if launch.tuned is not None:
            tuned.append(launch.tuned)
            compiled.append(launch)
    named = {
        "case_id": case.id,
        "implementation": implementation.name,
        "target": target,
    }
    return list(zip(tuned, _facts(compiled, target, named), strict=True))


def _launches(
    spec: KernelSpec,
    implementation: Implementation,
    case: Case,
    target: str,
    deadline_s: float = math.inf,
    most_configurations: int | None = MOST_CONFIGURATIONS,
) -> list[Launch]:
    with compiling_for(
        target,
        deadline_s=deadline_s,
        most_configurations=most_configurations,
    ) as launches:

        def call(*, has_data: bool) -> None:
            launches.clear()
            call_for_target(
                spec=spec,
                implementation=implementation,
                case=case,
                target=target,
                mode=CountingMode(),
                before_backward=launches.clear,
                ranges={},
                has_data=has_data,
            )

        call_with_or_without_data(call)
    return launches


def _distinct(launches: list[Launch]) -> list[Launch]:
    """Drop repeated launches; number a function that is compiled in several ways."""
    first_launches: dict[tuple[str, str | None], Launch] = {}
    for launch in launches:
        # what failed has no code, but a message
        if launch.compiled is None:
            identity = launch.message
        else:
            identity = launch.compiled.identity
        first_launches.setdefault((launch.function, identity), launch)
    seen: Counter[str] = Counter()
    for launch in first_launches.values():
        seen[launch.function] += 1
        # one name may stand for several specialisations
        if seen[launch.function] > 1:
            launch.function = f"{launch.function}#{seen[launch.function]}"
    return list(first_launches.values())


def _facts(launches: list[Launch], target: str, named: dict[str, Any]) -> list[StaticFacts]:
    compiled = [launch.compiled for launch in launches if launch.compiled is not None]
    codes = iter(analyse_code(compiled, target))
    static_facts: list[StaticFacts] = []
    for launch in launches:
        code_facts: dict[str, Any] = {}
        if launch.compiled is not None:
            code_facts = _code_facts(launch.compiled, target, next(codes))
        static_facts.append(
            StaticFacts(
                **named,
                function=launch.function,
                configuration=launch.configuration,
                outcome=launch.outcome,
                message=launch.message,
                **code_facts,
            )
        )
    return static_facts


def _code_facts(compiled: Compiled, target: str, analysed: AnalysedCode) -> dict[str, Any]:
    counts = analysed.counts
    code = machine_code(compiled.binary)
    if compiled.assembly is None:
        resources = nvidia_resources(compiled.binary, compiled.symbol)
    else:
        resources = amd_resources(compiled.assembly)
    shared_bytes = resources["static_shared_bytes"] + compiled.dynamic_shared_bytes
    occupancy: float | None = None
    limited_by: tuple[str, ...] = ()
    if target in LIMITS:
        limits = LIMITS[target]
        if compiled.tensor_memory_columns:  # of 512. Source: PTX ISA, tensor memory
            limits = replace(
                limits, max_blocks=min(limits.max_blocks, 512 // compiled.tensor_memory_columns)
            )
        occupancy, limited_by = theoretical_occupancy(
            limits=limits,
            threads=compiled.thread_count,
            registers=resources["registers"],
            shared_bytes=shared_bytes,
        )
    resident_blocks = 1
    if target in LIMITS and occupancy is not None:
        warps = -(-compiled.thread_count // LIMITS[target].warp_threads)
        resident_blocks = round(occupancy * LIMITS[target].max_warps / warps)
    return {
        **resources,
        "estimate": estimate(
            compiled,
            analysed.region,
            target,
            resident_blocks=resident_blocks,
            local_bytes=resources["local_bytes"],
        ),
        "toolchain": compiled.toolchain,
        "thread_count": compiled.thread_count,
        "spill_store_count": counts.get("local_store", 0),
        "spill_load_count": counts.get("local_load", 0),
        "shared_bytes": shared_bytes,
        "tensor_memory_columns": compiled.tensor_memory_columns,
        "theoretical_occupancy": occupancy,
        "occupancy_limits": limited_by,
        "instruction_count": counts[TOTAL],
        "instructions": {kind: count for kind, count in counts.items() if kind != TOTAL},
        "compile_ns": compiled.compile_ns,
        "code_bytes": len(code),
        "code_hash": hashlib.sha256(code).hexdigest(),
    }
