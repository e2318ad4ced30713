"""What limits each case of a kernel, and what to try first."""

from collections.abc import Sequence

from roofwatch.ci.diagnosis.finding import Diagnosis
from roofwatch.ci.static.prediction import estimates_of_call
from roofwatch.dashboard.wording import escaped
from roofwatch.model.metrics import format_ns, metric


def limits_html(diagnoses: Sequence[Diagnosis], target: str | None) -> str:
    """Write case, limit, time, possible time and first thing to try; equal advice once.

    Args:
        diagnoses: Of the cases of a kernel.
        target: The compiler's target for the device.
    """
    estimates = [estimated_ns(diagnosis, target) for diagnosis in diagnoses]
    has_estimates = any(estimates)
    advice: dict[str, int] = {}
    rows: list[str] = []
    for diagnosis, time_ns in zip(diagnoses, estimates, strict=True):
        number = ""
        if diagnosis.findings:
            text = diagnosis.findings[0].advice
            number = str(advice.setdefault(text, len(advice) + 1))
        estimate = ""
        if has_estimates:
            text = "" if time_ns is None else format_ns(time_ns)
            estimate = f'<td class="number">{text}</td>'
        rows.append(_limit_row(diagnosis, number, estimate))
    tries = ""
    if advice:
        items = "".join(f"<li>{escaped(text)}</li>" for text in advice)
        tries = f"<p><b>Try</b></p><ol>{items}</ol>"
    estimate_head = ""
    if has_estimates:
        estimate_head = (
            '<th class="number" title="By the cycle model, from machine code; not measured.">'
            "Estimated</th>"
        )
    return (
        '<div class="rw-scroll"><table class="rw-table"><thead><tr><th>Case</th>'
        '<th>Implementation</th><th>Limit</th><th class="number">Time</th>'
        f'{estimate_head}<th class="number">Possible</th><th class="number">Of achievable</th>'
        '<th>Why</th><th class="number">Try</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{tries}"
    )


def estimated_ns(diagnosis: Diagnosis, target: str | None) -> float | None:
    """Return the time that the cycle model gives all launches of a call; None if one has none."""
    functions = {
        fact.function: fact for fact in diagnosis.evidence.compiled if fact.target == target
    }
    estimates = estimates_of_call(functions)
    if not estimates:
        return None
    return sum(estimate.predicted_ns for estimate in estimates)


def _limit_row(diagnosis: Diagnosis, number: str, estimate: str) -> str:
    evidence = diagnosis.evidence
    measurement = evidence.measurement
    time = possible = share = ""
    if measurement is not None and measurement.median_ns is not None:
        time = format_ns(measurement.median_ns)
        if measurement.utilisation is not None:
            possible = format_ns(measurement.median_ns * measurement.utilisation)
            share = metric("utilisation").format(measurement.utilisation)
    return (
        f"<tr><td>{escaped(evidence.case.case_id)}</td>"
        f"<td>{escaped(evidence.implementation)}</td><td><b>{escaped(str(diagnosis.limit))}</b>"
        f'</td><td class="number">{escaped(time)}</td>{estimate}'
        f'<td class="number">{escaped(possible)}</td>'
        f'<td class="number">{share}</td><td class="rw-soft">{escaped(str(diagnosis.headline))}'
        f'</td><td class="number">{number}</td></tr>'
    )
