"""What is known about a kernel without a GPU, as a table."""

from collections.abc import Mapping, Sequence

from roofwatch.ci.static.analyses import describe_proof
from roofwatch.dashboard.components.table import SUBJECT, Column, show_table
from roofwatch.model.metrics import format_bytes
from roofwatch.model.proofs import OperatorCost, OverflowProof

_Key = tuple[str, str]


def show_analyses(proofs: Sequence[OverflowProof], costs: Sequence[OperatorCost]) -> None:
    """Show offsets and the cost of a call, one row for each case and implementation."""
    cost_of: Mapping[_Key, OperatorCost] = {cost.case_key: cost for cost in costs}

    def cost(proof: OverflowProof) -> OperatorCost | None:
        return cost_of.get(proof.case_key)

    # a proof may stand without a cost
    def number(proof: OverflowProof, name: str) -> int | None:
        known_cost = cost(proof)
        if known_cost is None:
            return None
        return int(getattr(known_cost, name))

    show_table(
        proofs,
        *SUBJECT,
        Column(
            "32-bit offsets",
            lambda proof: str(describe_proof(proof)),
            help="Whether a 32-bit integer of an offset can overflow, and from which size on.",
        ),
        Column("launches", lambda proof: number(proof, "launch_count")),
        Column("torch operators", lambda proof: _calls(cost(proof))),
        Column("bytes moved", lambda proof: number(proof, "moved_bytes"), format_bytes),
        Column(
            "memory",
            lambda proof: number(proof, "peak_bytes"),
            format_bytes,
            help="Largest total of temporaries and results that live at once.",
        ),
        Column("waits", lambda proof: number(proof, "wait_count")),
        omit_empty=True,
    )


def _calls(cost: OperatorCost | None) -> str:
    if cost is None:
        return ""
    return ", ".join(f"{count} {name}" for name, count in cost.calls.items())
