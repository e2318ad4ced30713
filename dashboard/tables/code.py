"""How compiled code moved, as a table: a row for each function and target, a column for each fact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from roofwatch.ci.static.comparison import StaticJudgement
from roofwatch.ci.static.facts import fact_values
from roofwatch.collector.record.metrics import metric
from roofwatch.dashboard.wording import VERDICT_MARKS, natural_order
from roofwatch.db.values import Verdict

SHORT_TITLES: Mapping[str, str] = {
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
"""Of facts, as headings; all are metrics."""


def worst_first(judged: Iterable[StaticJudgement]) -> list[StaticJudgement]:
    """What got worse, then the rest, each by target."""
    return sorted(judged, key=lambda one: (one.verdict is not Verdict.REGRESSED, natural_order(one.target)))


def code_table(judged: Sequence[StaticJudgement]) -> pd.DataFrame:
    """`68 → 232` where a fact moved, the value where it did not; what got worse comes first.

    Args:
        judged: Of one case and implementation, one at least.
    """
    ordered = worst_first(judged)
    moved = {name for one in judged for name in one.moved_facts}
    frame = pd.DataFrame(
        {
            "target": [one.target for one in ordered],
            "function": [one.function for one in ordered],
            "judged": [_judged_text(one) for one in ordered],
            **{
                title: [_fact_text(one, name) for one in ordered]
                for name, title in SHORT_TITLES.items()
                if name in moved
            },
        }
    )
    return frame.drop(columns="function") if frame["function"].nunique() == 1 else frame


def _judged_text(judged: StaticJudgement) -> str:
    """`◆ regressed`; what changed without being better or worse is no verdict."""
    return judged.word if judged.verdict is Verdict.UNCHANGED else VERDICT_MARKS[judged.verdict].text


def _fact_text(judged: StaticJudgement, name: str) -> str:
    if judged.base is None or judged.head is None:
        return ""
    before, after = (fact_values(facts).get(name) for facts in (judged.base, judged.head))
    if before is None or after is None:
        return ""
    write = metric(name).format
    return write(after) if before == after else f"{write(before)} → {write(after)}"
