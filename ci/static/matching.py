"""Pairs the functions of two sides: by name, by machine code, or as the only one that is left."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts

_Pair = tuple[str, StaticFacts | None, StaticFacts | None]


def by_subject_and_target(
    facts: Sequence[StaticFacts],
) -> dict[tuple[str, str, str], dict[str, StaticFacts]]:
    grouped: dict[tuple[str, str, str], dict[str, StaticFacts]] = defaultdict(dict)
    for function in facts:
        group = function.case_id, function.implementation, function.target
        grouped[group][function.function] = function
    return grouped


def matched(base: Mapping[str, StaticFacts], head: Mapping[str, StaticFacts]) -> list[_Pair]:
    """Pair functions by name and code, then by code (renamed), then by name; a single one left per
    side is renamed.

    If a whole launch failed, its one entry has the name of the implementation and is paired with
    every function.
    """
    base_left, head_left = dict(base), dict(head)
    pairs: list[_Pair] = []

    def take(base_name: str, head_name: str) -> None:
        pairs.append((head_name, base_left.pop(base_name), head_left.pop(head_name)))

    for name in sorted(base_left.keys() & head_left.keys()):
        code_hash = base_left[name].code_hash
        if code_hash is not None and code_hash == head_left[name].code_hash:
            take(name, name)
    names_by_code = {
        facts.code_hash: name
        for name, facts in sorted(base_left.items(), reverse=True)
        if compiles(facts)
    }
    for name in sorted(head_left):
        base_name = names_by_code.pop(head_left[name].code_hash, None)
        if base_name is not None:
            take(base_name, name)
    for name in sorted(base_left.keys() & head_left.keys()):
        take(name, name)
    if not pairs:
        failed = _failed_launch(head_left)
        if failed is not None and any(map(compiles, base_left.values())):
            return [(name, facts, failed) for name, facts in sorted(base_left.items())]
        failed = _failed_launch(base_left)
        if failed is not None and any(map(compiles, head_left.values())):
            return [(name, failed, facts) for name, facts in sorted(head_left.items())]
    if len(base_left) == len(head_left) == 1:
        take(*base_left, *head_left)
    pairs += [(name, None, facts) for name, facts in head_left.items()]
    pairs += [(name, facts, None) for name, facts in base_left.items()]
    return sorted(pairs, key=lambda pair: (pair[2] is None, pair[0]))


def _failed_launch(functions: Mapping[str, StaticFacts]) -> StaticFacts | None:
    if len(functions) != 1:
        return None
    (only,) = functions.values()
    is_whole_launch = only.function == only.implementation
    return only if is_whole_launch and not compiles(only) else None


def compiles(facts: StaticFacts | None) -> bool:
    return facts is not None and facts.outcome is Outcome.OK
