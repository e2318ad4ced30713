"""Errors against the float64 reference, with the declared values and with others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from roofwatch.dashboard.components.table import Column, show_table
from roofwatch.dashboard.wording import outcome_text
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import metric
from roofwatch.model.results import Accuracy, TensorError


@dataclass(frozen=True)
class _Checked:
    """One tensor of an accuracy check; None if the check failed before any was compared."""

    check: Accuracy
    tensor: TensorError | None

    @property
    def outcome(self) -> Outcome:
        if self.tensor is None:
            return self.check.outcome
        if self.tensor.passed:
            return Outcome.OK
        return Outcome.INCORRECT

    @property
    def values(self) -> str:
        """Which values were tried."""
        if self.tensor is None or self.tensor.regime is None:
            return "declared"
        return self.tensor.regime

    @property
    def relative_to_torch(self) -> float | None:
        # torch may be exact, and nothing is a multiple of zero
        if self.tensor is None or not self.tensor.baseline_rmse_ratio:
            return None
        return self.tensor.rmse_ratio / self.tensor.baseline_rmse_ratio


def show_accuracy(accuracies: Sequence[Accuracy]) -> None:
    error = metric("rmse_ratio")
    largest = metric("max_abs_error")

    def tensor_column(
        title: str,
        name: str,
        write: Callable[[float], str] | None = None,
    ) -> Column[_Checked]:
        """Return a column of a tensor, which a failed check may not have."""
        return Column(
            title,
            lambda checked: getattr(checked.tensor, name, None),
            write,
        )

    rows: list[_Checked] = []
    for check in accuracies:
        tensors = (*check.tensors, *check.regimes)
        rows.extend(_Checked(check, tensor) for tensor in tensors)
        # it failed before anything was compared
        if not tensors:
            rows.append(_Checked(check, None))
    show_table(
        rows,
        Column("case", lambda checked: checked.check.case_id),
        Column("implementation", lambda checked: checked.check.implementation),
        Column(
            "outcome",
            lambda checked: checked.outcome,
            outcome_text,
        ),
        tensor_column("tensor", "tensor"),
        Column("values", lambda checked: checked.values),
        tensor_column(error.title, "rmse_ratio", error.format),
        tensor_column("torch's error", "baseline_rmse_ratio", error.format),
        Column(
            "relative to torch",
            lambda checked: checked.relative_to_torch,
            "{:.2f}×".format,
        ),
        tensor_column(largest.title, "max_abs_error", largest.format),
        Column("executed on", lambda checked: checked.check.executor),
        Column("message", lambda checked: checked.check.message or ""),
    )
    st.caption(
        "A tensor is compared with the torch implementation of the same precision, within the "
        "limits of its dtype; a failure message has the limit."
    )
    if any(check.regimes for check in accuracies):
        st.caption(
            "Other values than the declared ones, such as peaked or shifted ones, are tried with "
            "the first case of each dtype and direction. They do not change the outcome of a case."
        )
