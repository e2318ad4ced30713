"""Whether the code of an imported kernel changed at a step. Pure."""

from collections.abc import Sequence

from roofwatch.ci.causes.evidence import Observation
from roofwatch.ci.history.steps import Timeline
from roofwatch.model.code_identity import CodeIdentity


def code_around(line: Timeline, positions: Sequence[int]) -> Observation | None:
    """Compare the code of an imported kernel before and after a step.

    Equal machine code alone does not show that the code is the same: an imported time may include
    what the host does, and kernels that were not compiled.

    Args:
        line: Of imported values.
        positions: Where the step may lie.

    Returns:
        Whether the code changed; None if that is not known.
    """
    base = line.commits[min(positions) - 1]
    head = line.commits[max(positions)]
    last_base_run = line.points[base][-1]
    base_code = CodeIdentity.parse(last_base_run.code_hash)
    last_head_run = line.points[head][-1]
    head_code = CodeIdentity.parse(last_head_run.code_hash)
    sources_changed = _differ(base_code.sources, head_code.sources)
    machine_code_changed = _differ(base_code.machine_code, head_code.machine_code)
    where = f"from {base.short_sha} to {head.short_sha}"
    if sources_changed is None:
        if not machine_code_changed:
            return None
        return Observation(True, f"the kernel's machine code changed {where}")
    sentence = f"the sources that the kernel uses {_verb(sources_changed)} {where}"
    if machine_code_changed is None:
        return Observation(sources_changed, sentence)
    # a change of sources need not reach the compiled kernel
    if machine_code_changed != sources_changed:
        sentence += f", but its machine code {_verb(machine_code_changed)}"
    elif machine_code_changed:
        sentence += ", and so did its machine code"
    else:
        sentence += ", nor did its machine code"
    return Observation(sources_changed or machine_code_changed, sentence)


def _differ(base: str | None, head: str | None) -> bool | None:
    if base is None or head is None:
        return None
    return base != head


def _verb(has_changed: bool) -> str:
    return "changed" if has_changed else "did not change"
