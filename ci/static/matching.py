"""Pairs the functions of two sides: by name, by machine code, or as the only one that is left."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from roofwatch.model.machine import Outcome
from roofwatch.model.results import StaticFacts

_Pair = tuple[str, StaticFacts | None, StaticFacts | None]
"""Name at the head, or at the base of a function that is gone, and the facts of both sides."""


def by_subject_and_target(
    facts: Sequence[StaticFacts],
) -> dict[tuple[str, str, str], dict[str, StaticFacts]]:
    """Group functions by case, implementation and target, then by name."""
    grouped: dict[tuple[str, str, str], dict[str, StaticFacts]] = defaultdict(dict)
    for function in facts:
        group = (function.case_id, function.implementation, function.target)
        grouped[group][function.function] = function
    return grouped


def matched(base: Mapping[str, StaticFacts], head: Mapping[str, StaticFacts]) -> list[_Pair]:
    """Pair functions by name and code, then by code (renamed), then by name; a single one left per
    side is renamed.

    If a whole launch failed, its one entry has the name of the implementation and is paired with
    every function.
    """
    functions = _Unpaired(base, head)
    functions.pair_equal()
    functions.pair_renamed()
    functions.pair_by_name()
    if not functions.pairs:
        functions.pair_with_failed_launch()
        # such a launch stands for all functions: nothing is single
        if functions.pairs:
            return functions.pairs
    functions.pair_last()
    functions.leave_single()
    return sorted(functions.pairs, key=_gone_last)


def _gone_last(pair: _Pair) -> tuple[bool, str]:
    """Sort key: by name, functions that are gone last."""
    name, _, head_facts = pair
    return head_facts is None, name


def _failed_launch(functions: Mapping[str, StaticFacts]) -> StaticFacts | None:
    """The one entry that stands for all functions of a call; None if they compiled."""
    # a failed launch has a single entry, because nothing tells its functions
    if len(functions) != 1:
        return None
    (only,) = functions.values()
    is_whole_launch = only.function == only.implementation
    if is_whole_launch and not compiles(only):
        return only
    return None


def compiles(facts: StaticFacts | None) -> bool:
    return facts is not None and facts.outcome is Outcome.OK


class _Unpaired:
    """Functions of both sides that have no partner yet, and the pairs so far."""

    def __init__(self, base: Mapping[str, StaticFacts], head: Mapping[str, StaticFacts]) -> None:
        self.base = dict(base)
        self.head = dict(head)
        self.pairs: list[_Pair] = []

    def pair(self, base_name: str, head_name: str) -> None:
        """Take a function of each side as one and the same."""
        base_facts = self.base.pop(base_name)
        head_facts = self.head.pop(head_name)
        self.pairs.append((head_name, base_facts, head_facts))

    def pair_equal(self) -> None:
        """Pair functions with equal name and code."""
        for name in self._common_names():
            code_hash = self.base[name].code_hash
            head_hash = self.head[name].code_hash
            # a function that failed to compile has no hash
            if code_hash is not None and code_hash == head_hash:
                self.pair(name, name)

    def pair_renamed(self) -> None:
        """Pair functions with equal code."""
        names_by_code: dict[str | None, str] = {}
        # reversed, so that the first of several names wins
        for name, facts in sorted(self.base.items(), reverse=True):
            if compiles(facts):
                names_by_code[facts.code_hash] = name
        for name in sorted(self.head):
            base_name = names_by_code.pop(self.head[name].code_hash, None)
            # equal code under another name
            if base_name is not None:
                self.pair(base_name, name)

    def pair_by_name(self) -> None:
        """Pair functions with equal names, whatever their code."""
        for name in self._common_names():
            self.pair(name, name)

    def pair_with_failed_launch(self) -> None:
        """Pair every function with the one entry of a launch that failed on the other side."""
        # if both sides failed, the entries have one name and are a pair already
        failed_head = _failed_launch(self.head)
        if failed_head is not None and any(map(compiles, self.base.values())):
            for name, base_facts in sorted(self.base.items()):
                self.pairs.append((name, base_facts, failed_head))
            return
        failed_base = _failed_launch(self.base)
        if failed_base is not None and any(map(compiles, self.head.values())):
            for name, head_facts in sorted(self.head.items()):
                self.pairs.append((name, failed_base, head_facts))

    def pair_last(self) -> None:
        """Pair the single function that is without a partner on each side: it was renamed."""
        if len(self.base) == len(self.head) == 1:
            self.pair(*self.base, *self.head)

    def leave_single(self) -> None:
        """Keep what has no partner: new functions, and those that are gone."""
        # new functions
        for name, facts in self.head.items():
            self.pairs.append((name, None, facts))
        # functions that are gone
        for name, facts in self.base.items():
            self.pairs.append((name, facts, None))

    def _common_names(self) -> list[str]:
        return sorted(self.base.keys() & self.head.keys())
