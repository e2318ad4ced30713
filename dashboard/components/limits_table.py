"""What limits each case of a kernel, and what to try first."""

from collections.abc import Mapping, Sequence

from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.ci.static.prediction import estimates_of_call
from roofwatch.dashboard.components.table import HtmlColumn, html_table, scrolled
from roofwatch.dashboard.wording import escaped
from roofwatch.model.metrics import format_ns, metric

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

    def estimate(diagnosis: Diagnosis) -> str:
        return _time_text(estimated_ns(diagnosis, target))

    columns: list[HtmlColumn[Diagnosis]] = [
        HtmlColumn("Case", lambda diagnosis: escaped(diagnosis.evidence.case.case_id)),
        HtmlColumn("Implementation", lambda diagnosis: escaped(diagnosis.evidence.implementation)),
        HtmlColumn("Limit", lambda diagnosis: f"<b>{escaped(str(diagnosis.limit))}</b>"),
        HtmlColumn("Time", _measured_text, "number"),
        HtmlColumn("Estimated", estimate, "number", _ESTIMATED),
        HtmlColumn("Possible", _possible_text, "number"),
        HtmlColumn("Of achievable", _share_text, "number"),
        HtmlColumn("Why", lambda diagnosis: escaped(str(diagnosis.headline)), "rw-soft"),
        HtmlColumn("Try", lambda diagnosis: _first_number(diagnosis, advice), "number"),
    ]
    if not any(map(estimate, diagnoses)):
        columns = [column for column in columns if column.help != _ESTIMATED]
    tries = ""
    if advice:
        items = "".join(f"<li>{escaped(text)}</li>" for text in advice)
        tries = f"<p><b>Try</b></p><ol>{items}</ol>"
    return f"{scrolled(html_table(diagnoses, columns))}{tries}"


def estimated_ns(diagnosis: Diagnosis, target: str | None) -> float | None:
    """Return the time that the cycle model gives all launches of a call; None if one has none."""
    # the device compiles for one target, while a record may hold others
    functions = {
        fact.function: fact for fact in diagnosis.evidence.compiled if fact.target == target
    }
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
    return _time_text(getattr(diagnosis.evidence.measurement, "median_ns", None))


def _possible_text(diagnosis: Diagnosis) -> str:
    """Write the time at the roof."""
    measurement = diagnosis.evidence.measurement
    if measurement is None or measurement.median_ns is None or measurement.utilisation is None:
        return ""
    return _time_text(measurement.median_ns * measurement.utilisation)


def _share_text(diagnosis: Diagnosis) -> str:
    share = getattr(diagnosis.evidence.measurement, "utilisation", None)
    if share is None:
        return ""
    return metric("utilisation").format(share)
