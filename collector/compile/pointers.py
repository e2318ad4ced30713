"""Where a pointer of a Triton function comes from."""

from roofwatch.collector.compile.ir import Value


def base_of(pointer: Value) -> Value | None:
    """Find the argument that a pointer or descriptor comes from; None if it cannot be told."""
    seen: set[Value] = set()
    waiting = [pointer]
    while waiting:
        value = waiting.pop()
        # A loop may hand a pointer back to itself.
        if value in seen:
            continue
        seen.add(value)
        operation = value.operation
        if operation is None and value.block is None:
            return value
        waiting += _sources(value)
    return None


def _sources(value: Value) -> list[Value]:
    """Values that a pointer may be taken from, without its offset."""
    operation = value.operation
    if operation is None:
        block = value.block
        assert block is not None
        parent = block.parent
        if parent is not None and parent.name == "scf.for" and value.index:
            # Operands are start, stop, step and initial values; argument 0 is the counter.
            return [parent.operands[value.index + 2]]
        if parent is not None and parent.name == "scf.while":
            return parent.operands[value.index : value.index + 1]
        return [branch.values[value.index] for branch in block.incoming]
    if operation.name == "scf.for":
        return [operation.operands[value.index + 3]]
    if operation.name in {"scf.if", "scf.while"}:
        lasts = [region[-1].last for region in operation.regions]
        # The value that a region yields last stands for all: pointers of one operand.
        return [last.operands[-1] for last in lasts if last is not None and last.operands]
    if operation.name == "arith.select":
        # The first operand is the condition.
        return operation.operands[1:2]
    return operation.operands[:1]
