"""Results of a check as a table. Everything in it is in the JSON output too."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from roofwatch.console.terminal import make_table
from roofwatch.model.case_key import CaseKey
from roofwatch.model.check_report import CheckReport, TensorReport
from roofwatch.model.machine import Outcome
from roofwatch.tables.cells import outcome_text, set_caption


def checks(reports: Sequence[CheckReport]) -> Table:
    """One row per case and implementation: outcome, worst tensor, and outcomes in other memory
    layouts and at other values.
    """
    layouts: dict[CaseKey, list[CheckReport]] = {}
    regimes: dict[CaseKey, list[CheckReport]] = {}
    declared: list[CheckReport] = []
    for report in reports:
        key = report.case_key
        if report.layout is not None:
            layouts.setdefault(key, []).append(report)
        elif report.regime is not None:
            regimes.setdefault(key, []).append(report)
        else:
            declared.append(report)
    rows = []
    for report in declared:
        key = report.case_key
        variations = [*layouts.get(key, []), *regimes.get(key, [])]
        row = (
            report.case_id,
            report.implementation,
            report.executor,
            _outcome_of_all(report, variations),
            *_worst(report.tensors),
            _layout_counts(layouts.get(key, [])),
            _layout_counts(regimes.get(key, [])),
        )
        rows.append(row)
    columns = (
        "case",
        "implementation",
        "executor",
        "outcome",
        "worst",
        "error",
        "limit",
        "torch",
        "layouts",
        "values",
    )
    table = make_table(columns, rows, left_column_count=5)
    unsupported = {report.message for report in declared if report.message}
    # a failure has a line of its own, with its message
    unsupported -= {report.message for report in reports if report.outcome.is_failure}
    set_caption(table, sorted(message for message in unsupported if message))
    return table


def _outcome_of_all(report: CheckReport, variations: Sequence[CheckReport]) -> Text:
    """The outcome of a case, or of the first variation that failed though the case passes."""
    failed = next((variation for variation in variations if variation.outcome.is_failure), None)
    if failed is None or report.outcome.is_failure:
        return outcome_text(report.outcome)
    kind = "layout" if failed.layout is not None else "values"
    return Text(f"{failed.outcome}: {kind}", style=f"red link {failed.outcome.url}")


def _worst(tensors: Sequence[TensorReport]) -> tuple[str | None, ...]:
    """Find the tensor and kind of error closest to or furthest beyond its limit: name, error,
    limit, error of torch.
    """
    errors = []
    for tensor in tensors:
        # beyond every limit
        if tensor.nonfinite_count:
            return tensor.tensor, "NaN or inf", None, None
        for kind, quantity in (("overall", "rmse_ratio"), ("largest", "elementwise")):
            error = getattr(tensor.errors, quantity)
            limit = getattr(tensor.limits, quantity)
            eager = None
            if tensor.baseline is not None:
                eager = f"{getattr(tensor.baseline, quantity):.1e}"
            # without a limit, the error itself is the best order
            share = error / limit if limit else error
            errors.append((share, f"{tensor.tensor} {kind}", error, limit, eager))
    if not errors:
        return (None,) * 4
    _, name, error, limit, eager = max(errors, key=lambda row: row[0])
    return name, f"{error:.1e}", f"{limit:.1e}", eager


def _layout_counts(reports: Sequence[CheckReport]) -> Text:
    correct = sum(report.outcome is Outcome.OK for report in reports)
    unsupported = sum(report.outcome is Outcome.UNSUPPORTED for report in reports)
    failed = len(reports) - correct - unsupported
    parts = [(correct, "ok", ""), (unsupported, "unsupported", "dim"), (failed, "failed", "red")]
    return Text(" ").join(
        Text(f"{count} {word}", style=style) for count, word, style in parts if count
    )
