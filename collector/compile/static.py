"""The static facts of a case: what an implementation launches, compiled for GPUs that are not here and never run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from roofwatch.collector.accuracy.evaluation import differentiable, differentiated_names, make_inputs, outputs_by_name
from roofwatch.collector.compile.binary import machine_code
from roofwatch.collector.compile.cache import DiskCache, digest_of, toolchain_digest
from roofwatch.collector.compile.instructions import TOTAL, Counts, instruction_counts
from roofwatch.collector.compile.launches import Compiled, Launch, compiling_for
from roofwatch.collector.compile.targets import DEFAULT_TARGETS, LIMITS, parse_target, theoretical_occupancy
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.spec import Case, Implementation, KernelSpec, Language

_KERNEL_OF = {Language.TORCH: "kernel", Language.TRITON: "Triton kernel", Language.CUDA: "CudaKernel"}


def compile_case(
    spec: KernelSpec, implementation: Implementation, case: Case, targets: Sequence[str] = DEFAULT_TARGETS
) -> list[StaticFacts]:
    """Compile every function that one call of the case launches, for each target.

    In the `bwd` direction only what the backward pass launches counts; the forward pass has its own case.

    Raises:
        TargetError: a target is not known.
        ToolchainError: a program that compiles, or reads what was compiled, is not there.
        Exception: whatever the implementation raises outside of a compiler.
    """
    for target in targets:
        parse_target(target)
    facts: list[StaticFacts] = []
    # nothing reads the numbers, only sizes, strides and alignment count
    inputs = make_inputs(spec, case, "cpu", only_integers=True)
    for target in targets:
        reason = implementation.unsupported_targets.get(target)
        launches = [] if reason is not None else _distinct(_launches(spec, implementation, case, target, inputs))
        compiled = [launch.compiled for launch in launches if launch.compiled is not None]
        counts = instruction_counts(compiled, target, _toolchain())
        facts.extend(_facts(case, implementation, target, launch, counts) for launch in launches)
        if not launches:
            facts.append(
                StaticFacts(
                    case_id=case.id,
                    implementation=implementation.name,
                    function=implementation.name,
                    target=target,
                    outcome=Outcome.UNSUPPORTED,
                    message=f"launches no {_KERNEL_OF[implementation.language]}"
                    if reason is None
                    else f"{target} {reason}",
                )
            )
    return facts


def _launches(
    spec: KernelSpec, implementation: Implementation, case: Case, target: str, inputs: dict[str, Any]
) -> list[Launch]:
    with compiling_for(target) as launches:
        outputs = outputs_by_name(implementation.launch(**inputs))
        names = differentiated_names(spec, case, inputs)
        if names:
            launches.clear()
            roots = differentiable(outputs)
            torch.autograd.grad(
                roots,
                [inputs[name] for name in names],
                [torch.empty_like(output) for output in roots],
                allow_unused=True,
            )
    return launches


def _distinct(launches: list[Launch]) -> list[Launch]:
    """One of each function and way of compiling it, numbered where a function is compiled in several ways."""
    kept: dict[tuple[str, str], Launch] = {}
    for launch in launches:
        identity = str(launch.error or launch.unsupported) if launch.compiled is None else launch.compiled.identity
        kept.setdefault((launch.function, identity), launch)
    seen: dict[str, int] = {}
    for launch in kept.values():
        seen[launch.function] = seen.get(launch.function, 0) + 1
        if seen[launch.function] > 1:
            launch.function = f"{launch.function}#{seen[launch.function]}"
    return list(kept.values())


def _facts(
    case: Case, implementation: Implementation, target: str, launch: Launch, counts: Mapping[str, Counts]
) -> StaticFacts:
    common: dict[str, Any] = {
        "case_id": case.id,
        "implementation": implementation.name,
        "function": launch.function,
        "target": target,
        "configuration": launch.configuration,
    }
    if launch.unsupported is not None:
        return StaticFacts(**common, outcome=Outcome.UNSUPPORTED, message=launch.unsupported)
    if launch.compiled is None:
        return StaticFacts(**common, outcome=Outcome.COMPILE_ERROR, message=launch.error)
    code_facts = _facts_of_code(launch.compiled, target, counts[launch.compiled.identity])
    return StaticFacts(**common, outcome=Outcome.OK, **code_facts)


def _facts_of_code(compiled: Compiled, target: str, counts: Counts) -> dict[str, Any]:
    code = machine_code(compiled.binary)
    resources = compiled.resources()
    shared_bytes = resources.static_shared_bytes + compiled.dynamic_shared_bytes
    instructions = dict(counts)
    facts: dict[str, Any] = {
        "toolchain": compiled.toolchain,
        "thread_count": compiled.thread_count,
        "registers": resources.registers,
        "accumulation_registers": resources.accumulation_registers,
        "scalar_registers": resources.scalar_registers,
        "spilled_registers": resources.spilled_registers,
        "spill_store_count": instructions.get("local_store", 0),
        "spill_load_count": instructions.get("local_load", 0),
        "local_bytes": resources.local_bytes,
        "shared_bytes": shared_bytes,
        "static_shared_bytes": resources.static_shared_bytes,
        "tensor_memory_columns": compiled.tensor_memory_columns,
        "instruction_count": instructions.pop(TOTAL),
        "instructions": instructions,
        "compile_ns": _compile_ns(compiled),
        "code_bytes": len(code),
        "code_hash": hashlib.sha256(code).hexdigest(),
    }
    if target in LIMITS:
        occupancy = theoretical_occupancy(
            LIMITS[target],
            threads=compiled.thread_count,
            registers=resources.registers,
            shared_bytes=shared_bytes,
        )
        facts |= {"theoretical_occupancy": occupancy.share, "occupancy_limits": occupancy.limited_by}
    return facts


def _compile_ns(compiled: Compiled) -> dict[str, int]:
    """As it was when it was really compiled: where a compiler's own cache had it, what was noted then."""
    key = digest_of(compiled.identity, _toolchain())
    store = DiskCache.of_user()
    if compiled.compile_ns:
        store.put("compile_ns", key, compiled.compile_ns)
        return compiled.compile_ns
    return dict(store.get("compile_ns", key) or {})


@cache
def _toolchain() -> str:
    return toolchain_digest()
