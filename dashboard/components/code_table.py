"""Facts of compiled functions, what the cycle model says of them, and why they spill."""

from collections.abc import Mapping, Sequence

import streamlit as st

from roofwatch.ci.static.explanation import explain_spills
from roofwatch.ci.static.facts import fact_values, facts_in_words
from roofwatch.dashboard.components.table import SUBJECT, Column, show_table
from roofwatch.dashboard.wording import code_span, natural_order, outcome_text
from roofwatch.model.metrics import METRICS, format_ns, metric
from roofwatch.model.results import StaticFacts

FACT_TITLES: Mapping[str, str] = {
    "registers": "registers",
    "spilled_registers": "spilled",
    "spill_store_count": "spill stores",
    "spill_load_count": "spill loads",
    "local_bytes": "local memory",
    "shared_bytes": "shared memory",
    "theoretical_occupancy": "occupancy",
    "instruction_count": "instructions",
    "code_bytes": "code size",
}
"""Column titles of metrics of compiled code."""
_HASH_LENGTH = 12
_CONSTANT_COLUMNS = ("case", "implementation", "function", "outcome", "configuration")
"""Columns that are left out if all rows have the same value."""
_NOT_CHANGED = ("same machine code", "first commit")
_Key = tuple[str, str, str, str]
"""Case, implementation, function and target."""


def show_static(facts: Sequence[StaticFacts], earlier: Sequence[StaticFacts] | None) -> None:
    """Show the compiler facts of each function and target, changed ones first.

    Args:
        facts: Facts of this run, at least one.
        earlier: Facts of the previous measured commit, if any.
    """
    earlier_facts = {_key(fact): fact for fact in earlier or ()}
    changes: dict[_Key, str] = {}
    for fact in facts:
        key = _key(fact)
        # before the first commit there is nothing to compare with
        if earlier is None:
            changes[key] = "first commit"
        else:
            changes[key] = _changes_text(earlier_facts.get(key), fact)

    def fact_column(name: str) -> Column[StaticFacts]:
        help_text = METRICS[name].title
        if name == "theoretical_occupancy":
            help_text = "Resident warps / maximum warps, from the resources that the code needs."
        return Column(
            FACT_TITLES[name],
            lambda fact: getattr(fact, name),
            metric(name).format,
            help_text,
        )

    def rank(fact: StaticFacts) -> tuple[object, ...]:
        key = _key(fact)
        # changed code first
        is_unchanged = changes[key] in _NOT_CHANGED
        return (is_unchanged, *map(natural_order, key))

    columns: list[Column[StaticFacts]] = [
        Column("target", lambda fact: fact.target),
        *SUBJECT,
        Column("function", lambda fact: fact.function),
        Column("changed", lambda fact: changes[_key(fact)]),
        Column(
            "outcome",
            lambda fact: fact.outcome,
            outcome_text,
        ),
        Column(
            "limited by",
            lambda fact: ", ".join(fact.occupancy_limits),
            help="What prevents more blocks on an SM.",
        ),
        Column(
            "estimated time",
            lambda fact: fact.estimate and fact.estimate.predicted_ns,
            format_ns,
            help="By the cycle model, from the machine code of one launch; not measured.",
        ),
        Column("estimated range", _estimated_range),
        Column("estimated limit", lambda fact: fact.estimate and fact.estimate.limit),
        Column("threads", lambda fact: fact.thread_count),
        *map(fact_column, FACT_TITLES),
        Column("code hash", lambda fact: (fact.code_hash or "")[:_HASH_LENGTH]),
        Column("configuration", _configuration_text),
    ]
    # a value that all rows share is a sentence below the table
    common = _common_values(facts, columns)
    changed_facts_first = sorted(facts, key=rank)
    varying_columns = [column for column in columns if column.title not in common]
    show_table(
        changed_facts_first,
        *varying_columns,
        omit_empty=True,
    )
    constants: list[str] = []
    for name, value in common.items():
        if value:
            constants.append(f"{name} {code_span(value)}")
    if constants:
        constants_text = ", ".join(constants)
        st.caption(f"In every row: {constants_text}.")
    for sentence, targets in _spills(facts).items():
        targets_text = code_span(", ".join(targets))
        st.markdown(f"{targets_text}: {sentence}")


def _spills(facts: Sequence[StaticFacts]) -> dict[str, list[str]]:
    """Return targets by the sentence that says why a function spills there, as Markdown."""
    targets_of: dict[str, list[str]] = {}
    by_target = sorted(facts, key=lambda fact: natural_order(fact.target))
    for fact in by_target:
        reason = explain_spills(fact)
        if reason is None:
            continue
        function = code_span(fact.function)
        sentence = f"{function} {reason.quoted(code_span)}"
        # a sentence once for all targets on which it is true
        targets = targets_of.setdefault(sentence, [])
        if fact.target not in targets:
            targets.append(fact.target)
    return targets_of


def _estimated_range(fact: StaticFacts) -> str:
    """Write the least and the greatest time under the assumptions of the cycle model."""
    if fact.estimate is None:
        return ""
    low = format_ns(fact.estimate.low_ns)
    high = format_ns(fact.estimate.high_ns)
    return f"{low} to {high}"


def _common_values(
    facts: Sequence[StaticFacts],
    columns: Sequence[Column[StaticFacts]],
) -> dict[str, str]:
    """Values that are equal in all rows, by title of their column."""
    common: dict[str, str] = {}
    for column in columns:
        if column.title not in _CONSTANT_COLUMNS:
            continue
        values = {str(column.value(fact)) for fact in facts}
        if len(values) == 1:
            common[column.title] = values.pop()
    return common


def _configuration_text(facts: StaticFacts) -> str:
    settings = [f"{name}={value}" for name, value in facts.configuration.items()]
    return ", ".join(settings)


def _key(facts: StaticFacts) -> _Key:
    return facts.case_id, facts.implementation, facts.function, facts.target


def _changes_text(base: StaticFacts | None, head: StaticFacts) -> str:
    if base is None:
        return "new"
    # code that no longer compiles has no facts to compare
    if base.outcome is not head.outcome:
        base_outcome = base.outcome.replace("_", " ")
        head_outcome = head.outcome.replace("_", " ")
        return f"{base_outcome} → {head_outcome}"
    # the hash leaves out line information, so that comments do not change it
    if base.code_hash == head.code_hash:
        return "same machine code"
    facts = facts_in_words(fact_values(base), fact_values(head))
    if not facts:
        return "code changed"
    return f"code changed, {facts}"
