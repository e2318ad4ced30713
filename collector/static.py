"""The static facts of a case: what an implementation launches, compiled for GPUs that are not here and never run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from collector.binary import machine_code
from collector.evaluation import differentiable, differentiated_names, make_inputs, outputs_by_name
from collector.launches import Launch, compiling_for
from collector.record import Outcome, StaticFacts
from collector.targets import DEFAULT_TARGETS
from roofwatch.spec import Case, Implementation, KernelSpec, Language

_KERNEL_OF = {Language.TORCH: "kernel", Language.TRITON: "Triton kernel", Language.CUDA: "CudaKernel"}


def compile_case(
    spec: KernelSpec, implementation: Implementation, case: Case, targets: Sequence[str] = DEFAULT_TARGETS
) -> list[StaticFacts]:
    """Compile every function that one call of the case launches, for each target.

    In the `bwd` direction only what the backward pass launches counts; the forward pass has its own case.

    Raises:
        Exception: whatever the implementation raises outside of a compiler.
    """
    facts: list[StaticFacts] = []
    # nothing reads the numbers, only sizes, strides and alignment count
    inputs = make_inputs(spec, case, "cpu", only_integers=True)
    for target in targets:
        reason = implementation.unsupported_targets.get(target)
        launches = [] if reason is not None else _distinct(_launches(spec, implementation, case, target, inputs))
        facts.extend(_facts(case, implementation, target, launch) for launch in launches)
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


def _facts(case: Case, implementation: Implementation, target: str, launch: Launch) -> StaticFacts:
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
    code = machine_code(launch.compiled.binary)
    resources = launch.compiled.resources()
    return StaticFacts(
        **common,
        outcome=Outcome.OK,
        registers=resources.registers,
        spilled_registers=resources.spilled_registers,
        local_bytes=resources.local_bytes,
        shared_bytes=launch.compiled.shared_bytes,
        code_bytes=len(code),
        code_hash=hashlib.sha256(code).hexdigest(),
    )
