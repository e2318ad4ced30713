"""What is known about a kernel without a GPU, as a table."""

from collections.abc import Sequence

from roofwatch.ci.static.analyses import describe_proof
from roofwatch.dashboard.components.table import SUBJECT, Column, show_table
from roofwatch.model.metrics import format_bytes
from roofwatch.model.proofs import OperatorCost, OverflowProof

_Key = tuple[str, str]


def show_analyses(proofs: Sequence[OverflowProof], costs: Sequence[OperatorCost]) -> None:
    """Show offsets and the cost of a call, one row for each case and implementation."""
    cost_of: dict[_Key, OperatorCost] = {}
    for cost in costs:
        cost_of[cost.case_key] = cost

    # a proof may stand without a cost
    def number(proof: OverflowProof, name: str) -> int | None:
        cost = cost_of.get(proof.case_key)
        if cost is None:
            return None
        return int(getattr(cost, name))

    def operators(proof: OverflowProof) -> str:
        cost = cost_of.get(proof.case_key)
        if cost is None:
            return ""
        counts = [f"{count} {name}" for name, count in cost.calls.items()]
        return ", ".join(counts)

    show_table(
        proofs,
        *SUBJECT,
        Column(
            "32-bit offsets",
            lambda proof: str(describe_proof(proof)),
            help="Whether a 32-bit integer of an offset can overflow, and from which size on.",
        ),
        Column("launches", lambda proof: number(proof, "launch_count")),
        Column("torch operators", operators),
        Column(
            "bytes moved",
            lambda proof: number(proof, "moved_bytes"),
            format_bytes,
        ),
        Column(
            "memory",
            lambda proof: number(proof, "peak_bytes"),
            format_bytes,
            help="Largest total of temporaries and results that live at once.",
        ),
        Column("waits", lambda proof: number(proof, "wait_count")),
        omit_empty=True,
    )
