"""Compiled facts of one function before and after: which of them moved, and what that amounts to. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from collector.metrics import METRICS, Layer, metric
from db.values import Verdict

FACTS = tuple(key for key, row in METRICS.items() if row.layer is Layer.STATIC)
DECISIVE_FACTS = ("local_bytes", "spilled_registers")
"""Facts that are a regression by themselves, the more telling first: what every thread keeps in device memory, which is
a hundred times further away than a register. Registers, shared memory and code size are budgets: more of them often
buys speed, so they are evidence beside a verdict and never one."""


def moved_facts(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[str, ...]:
    """Facts known on both sides that differ, the decisive ones first."""
    names = (*DECISIVE_FACTS, *(name for name in FACTS if name not in DECISIVE_FACTS))
    return tuple(name for name in names if name in before and name in after and before[name] != after[name])


def judge_facts(before: Mapping[str, float], after: Mapping[str, float]) -> Verdict:
    """`regressed` or `improved` if a decisive fact moved, else `unchanged`.

    Any move counts, since compiling is deterministic. Where the two decisive facts contradict each other, the bytes
    decide.
    """
    for name in DECISIVE_FACTS:
        if name in moved_facts(before, after):
            is_worse = metric(name).is_worse(base=before[name], head=after[name])
            return Verdict.REGRESSED if is_worse else Verdict.IMPROVED
    return Verdict.UNCHANGED


def facts_in_words(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """What moved, as a list with units; empty if nothing did."""
    return ", ".join(
        f"{metric(name).title} {metric(name).format(before[name])} to {metric(name).format(after[name])}"
        for name in moved_facts(before, after)
    )
