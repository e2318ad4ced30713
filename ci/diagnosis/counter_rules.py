"""Rules about hardware counters: work beyond the cost model, and the rate of instructions."""

from collections.abc import Iterator

from roofwatch.ci.diagnosis.evidence import Evidence, Limit
from roofwatch.ci.diagnosis.finding import DiagnosisFinding, Rule, Weight
from roofwatch.model.metrics import metric

EXCESS_WORK = 1.2
"""As for memory traffic."""
FEWER_INSTRUCTIONS = (
    "Execute fewer instructions per element: exp2 with a folded factor instead of exp, "
    "wider loads, packed arithmetic, and index arithmetic outside the loop."
)
_PIPES = {
    "fma_pipe_share": "FMA",
    "alu_pipe_share": "ALU",
    "xu_pipe_share": "XU (exp, log, sin)",
    "lsu_pipe_share": "LSU (loads, stores)",
    "fp64_pipe_share": "FP64",
    "tensor_pipe_share": "tensor",
}


def excess_work(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    executed = evidence.executed_flop_count
    declared = evidence.case.flop_count
    if executed is None or not declared or executed < EXCESS_WORK * declared:
        return
    excess_ratio = executed / declared
    most_speedup = None
    # less arithmetic helps only where arithmetic is the limit
    if evidence.limit is Limit.COMPUTE and evidence.utilisation is not None:
        most_speedup = min(excess_ratio, 1 / evidence.utilisation)
    write = metric("flop_per_s").format
    executed_text, declared_text = (
        write(count).removesuffix("/s") for count in (executed, declared)
    )
    yield DiagnosisFinding(
        title="more arithmetic than necessary",
        text=f"The hardware executed {executed_text}; the cost model needs {declared_text}: "
        f"{excess_ratio:.1f} times as much.",
        advice="Skip tiles that a mask removes, do not compute a value twice, and check whether "
        "padding or an emulated precision adds products.",
        most_speedup=most_speedup,
    )


def busy_issue_slots(evidence: Evidence) -> Iterator[DiagnosisFinding]:
    if not evidence.is_issue_bound:
        return
    values = evidence.counters[0].values
    busy_share = values["issue_slots_share"]
    text = f"Schedulers issue an instruction in {busy_share:.0%} of cycles"
    pipes = {title: values[name] for name, title in _PIPES.items() if values.get(name)}
    if pipes:
        busiest = max(pipes, key=pipes.__getitem__)
        text += f"; the busiest pipe is {busiest} at {pipes[busiest]:.0%}"
    yield DiagnosisFinding(
        title="instruction issue is the limit",
        text=f"{text}.",
        advice=FEWER_INSTRUCTIONS,
        weight=Weight.BINDING,
        most_speedup=evidence.most_speedup,
    )


COUNTER_RULES: tuple[Rule, ...] = (excess_work, busy_issue_slots)
