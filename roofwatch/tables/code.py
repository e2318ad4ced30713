"""Compiled functions and what is proven of calls, as tables."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from roofwatch.ci.messages import count_of, listed, visible
from roofwatch.ci.static.analyses import describe_proof
from roofwatch.collector.compile.instructions import widths
from roofwatch.console.terminal import make_table
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import format_bytes, metric
from roofwatch.model.optional import map_optional
from roofwatch.model.proofs import OperatorCost, OverflowProof, Proof
from roofwatch.model.results import StaticFacts
from roofwatch.tables.cells import outcome_text, set_caption

_PROOF_STYLE = {Proof.UNSAFE: "bold red", Proof.UNKNOWN: "dim"}
_ACCESSES = (("load", "global_load"), ("async", "async_copy"), ("store", "global_store"))


def headline(facts: Sequence[StaticFacts], path: Path | None) -> str:
    """How much was compiled, and what spills."""
    # a function has facts for each case, and is named once
    failed: dict[str, None] = {}
    spilling: dict[str, None] = {}
    for fact in facts:
        if fact.outcome.is_failure:
            failed[f"{fact.function} for {fact.target}"] = None
        if fact.outcome is Outcome.OK and fact.local_bytes:
            spilling[f"{fact.function} on {fact.target}"] = None
    if failed:
        result = f"does not compile: {listed(failed)}"
    else:
        function_count = len({fact.function for fact in facts})
        target_count = len({fact.target for fact in facts})
        functions = count_of(function_count, "function")
        result = f"compiled: {functions} for {count_of(target_count, 'target')}"
    spills = "no spills"
    if spilling:
        spills = f"spills: {listed(spilling)}"
    suite = [] if path is None else [str(path)]
    command = shlex.join(["roofwatch", "static", *suite, "--base", "HEAD"])
    return f"{result}; {spills}; next, after a change: {command}"


def static_facts(facts: Sequence[StaticFacts]) -> Table:
    """One row per compiled function and case: per target registers, occupancy, spills and the
    widest accesses.
    """
    targets = list(dict.fromkeys(fact.target for fact in facts))
    rows: list[tuple[object, ...]] = []
    for group in _by_function(facts):
        by_target = {fact.target: fact for fact in group}
        cells = [map_optional(_compiled, by_target.get(target)) for target in targets]
        rows.append((group[0].function, group[0].case_id, *cells))
    title = (
        "registers per thread, theoretical occupancy and its limit; spills; shared memory per "
        "block; tensor-core instructions; widest loads and stores"
    )
    table = make_table(("function", "case", *targets), rows, title=title)
    set_caption(table, _messages(facts))
    return table


def _by_function(facts: Sequence[StaticFacts]) -> list[list[StaticFacts]]:
    """The facts of each function, case and implementation on all targets, in their order."""
    groups: dict[tuple[str, str, str], list[StaticFacts]] = {}
    for fact in facts:
        subject = (fact.case_id, fact.implementation, fact.function)
        groups.setdefault(subject, []).append(fact)
    return list(groups.values())


def _messages(facts: Sequence[StaticFacts]) -> list[str]:
    """Why code did not compile; a failure that repeats on each target, once."""
    return list(dict.fromkeys(fact.message for fact in facts if fact.message))


def compiled_ranges(facts: Sequence[StaticFacts]) -> Table:
    """One row per compiled function and case: the range of each fact over all targets."""
    rows: list[tuple[object, ...]] = []
    for group in _by_function(facts):
        compiled = [fact for fact in group if fact.outcome is Outcome.OK]
        failed = [fact for fact in group if fact.outcome.is_failure]
        # one target that fails is the news
        example = [*failed, *group][0]
        row = (
            example.function,
            example.case_id,
            outcome_text(example.outcome),
            _range_of("registers", compiled),
            _range_of("theoretical_occupancy", compiled),
            _spills(compiled),
            _range_of("shared_bytes", compiled),
        )
        rows.append(row)
    columns = ("function", "case", "outcome", "registers", "occupancy", "spills", "shared")
    targets = ", ".join(dict.fromkeys(fact.target for fact in facts))
    title = f"compiled for {targets}; one column per target: roofwatch static"
    table = make_table(columns, rows, title=title, left_column_count=3, omit_empty=True)
    set_caption(table, _messages(facts))
    return table


def _range_of(name: str, facts: Sequence[StaticFacts]) -> str | None:
    values: list[float] = []
    for fact in facts:
        value = getattr(fact, name)
        if value is not None:
            values.append(value)
    # no shared memory is the usual case, and no news
    if not any(values):
        return None
    format_value = metric(name).format
    lowest = format_value(min(values))
    highest = format_value(max(values))
    if lowest == highest:
        return lowest
    return f"{lowest} to {highest}"


def _spills(facts: Sequence[StaticFacts]) -> Text:
    """The targets on which a function uses memory per thread, with the most bytes."""
    spilling = {fact.target: fact.local_bytes for fact in facts if fact.local_bytes}
    if not spilling:
        return Text("none")
    most = format_bytes(max(spilling.values()))
    return Text(f"{most} on {', '.join(spilling)}", style="bold red")


def analyses(proofs: Sequence[OverflowProof], costs: Sequence[OperatorCost]) -> Table:
    """One row per case and implementation: its offsets, and what a call does in torch."""
    cost_of = {cost.case_key: cost for cost in costs}
    rows: list[tuple[Any, ...]] = []
    for proof in proofs:
        cost = cost_of.get(proof.case_key)
        words = visible(str(describe_proof(proof)))
        offsets = Text(words, _PROOF_STYLE.get(proof.proof, ""))
        rows.append((proof.case_id, proof.implementation, offsets, *_cost_cells(cost)))
    columns = (
        "case",
        "implementation",
        "32-bit offsets",
        "launches",
        "torch operators",
        "bytes moved",
        "memory",
        "waits",
    )
    return make_table(
        columns,
        rows,
        title="analysed without a GPU, for the first target",
        left_column_count=3,
        omit_empty=True,
    )


def _cost_cells(cost: OperatorCost | None) -> tuple[str | None, ...]:
    if cost is None:
        return (None,) * 5
    calls = [f"{count} {name}" for name, count in cost.calls.items()]
    return (
        str(cost.launch_count),
        visible(", ".join(calls)),
        format_bytes(cost.moved_bytes),
        format_bytes(cost.peak_bytes),
        str(cost.wait_count or ""),
    )


def _compiled(fact: StaticFacts) -> Text:
    if fact.outcome is not Outcome.OK:
        return outcome_text(fact.outcome)
    lines = [Text(f"{fact.registers} regs")]
    if fact.theoretical_occupancy is not None:
        occupancy = metric("theoretical_occupancy").format(fact.theoretical_occupancy)
        limits = ", ".join(fact.occupancy_limits)
        lines[0].append(f", {occupancy} by {limits}")
    # Spills cost more than anything else that a table shows.
    if fact.local_bytes or fact.spill_store_count or fact.spill_load_count:
        spills = f"{format_bytes(fact.local_bytes or 0)} local"
        counts = f", {fact.spill_store_count or 0} stores, {fact.spill_load_count or 0} loads"
        lines.append(Text(spills + counts, style="bold red"))
    if fact.shared_bytes:
        lines.append(Text(f"{format_bytes(fact.shared_bytes)} shared", style="dim"))
    tensor = [
        kind.removeprefix("tensor.") for kind in fact.instructions if kind.startswith("tensor.")
    ]
    widest: list[str] = []
    for word, kind in _ACCESSES:
        width = _widest(fact, kind)
        if width:
            widest.append(f"{word} {width}")
    lines += [Text(", ".join(words), style="dim") for words in (tensor, widest) if words]
    return Text("\n").join(lines)


def _widest(fact: StaticFacts, kind: str) -> int:
    """Width of the widest access of a kind, in bits; 0 without any."""
    return max((width for width, _ in widths(fact.instructions, kind)), default=0)
