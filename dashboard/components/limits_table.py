"""What limits each case of a kernel, and what to try first."""

from collections.abc import Mapping, Sequence

from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.ci.static.prediction import estimates_of_call
from roofwatch.dashboard.components.table import HtmlColumn, html_table, scrolled
from roofwatch.dashboard.wording import escaped
from roofwatch.model.metrics import format_ns, metric
from roofwatch.model.results import StaticFacts

_ESTIMATED = "By the cycle model, from machine code; not measured."


def limits_html(diagnoses: Sequence[Diagnosis], target: str | None) -> str:
    """Write case, limit, time, possible time and first thing to try; equal advice once.

    Args:
        diagnoses: Of the cases of a kernel.
        target: The compiler's target for the device.
    """
    # equal advice stands once below the table; a row has its number
    advice: dict[str, int] = {}
    for diagnosis in diagnoses:
        for finding in diagnosis.findings[:1]:
            advice.setdefault(finding.advice, len(advice) + 1)

    def limit_html(diagnosis: Diagnosis) -> str:
        limit = escaped(str(diagnosis.limit))
        return f"<b>{limit}</b>"

    def estimate(diagnosis: Diagnosis) -> str:
        return _time_text(estimated_ns(diagnosis, target))

    columns: list[HtmlColumn[Diagnosis]] = [
        HtmlColumn("Case", lambda diagnosis: escaped(diagnosis.evidence.case.case_id)),
        HtmlColumn("Implementation", lambda diagnosis: escaped(diagnosis.evidence.implementation)),
        HtmlColumn("Limit", limit_html),
        HtmlColumn("Time", _measured_text, "number"),
        HtmlColumn(
            "Estimated",
            estimate,
            "number",
            _ESTIMATED,
        ),
        HtmlColumn("Possible", _possible_text, "number"),
        HtmlColumn("Of achievable", _share_text, "number"),
        HtmlColumn(
            "Why",
            lambda diagnosis: escaped(str(diagnosis.headline)),
            "rw-soft",
        ),
        HtmlColumn(
            "Try",
            lambda diagnosis: _first_number(diagnosis, advice),
            "number",
        ),
    ]
    has_estimates = any(estimate(diagnosis) for diagnosis in diagnoses)
    if not has_estimates:
        columns = [column for column in columns if column.help != _ESTIMATED]
    tries = ""
    if advice:
        items = "".join(f"<li>{escaped(text)}</li>" for text in advice)
        tries = f"<p><b>Try</b></p><ol>{items}</ol>"
    table = html_table(diagnoses, columns)
    return f"{scrolled(table)}{tries}"


def estimated_ns(diagnosis: Diagnosis, target: str | None) -> float | None:
    """Return the time that the cycle model gives all launches of a call; None if one has none."""
    functions: dict[str, StaticFacts] = {}
    for fact in diagnosis.evidence.compiled:
        # the device compiles for one target, while a record may hold others
        if fact.target == target:
            functions[fact.function] = fact
    estimates = estimates_of_call(functions)
    if not estimates:
        return None
    return sum(estimate.predicted_ns for estimate in estimates)


def _first_number(diagnosis: Diagnosis, advice: Mapping[str, int]) -> str:
    for finding in diagnosis.findings[:1]:
        return str(advice[finding.advice])
    return ""


def _time_text(time_ns: float | None) -> str:
    if time_ns is None:
        return ""
    return escaped(format_ns(time_ns))


def _measured_text(diagnosis: Diagnosis) -> str:
    median_ns = getattr(diagnosis.evidence.measurement, "median_ns", None)
    return _time_text(median_ns)


def _possible_text(diagnosis: Diagnosis) -> str:
    """Write the time at the roof."""
    measurement = diagnosis.evidence.measurement
    if measurement is None:
        return ""
    if measurement.median_ns is None or measurement.utilisation is None:
        return ""
    roof_ns = measurement.median_ns * measurement.utilisation
    return _time_text(roof_ns)


def _share_text(diagnosis: Diagnosis) -> str:
    share = getattr(diagnosis.evidence.measurement, "utilisation", None)
    if share is None:
        return ""
    return metric("utilisation").format(share)
