"""Cells and captions that tables share."""

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from roofwatch.ci.messages import visible
from roofwatch.collector.device.datasheets import compare_with_datasheet, share_of_peak
from roofwatch.collector.device.roofline import roof_of
from roofwatch.model.case_key import CaseKey
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord

_VERDICT_STYLE = {"regressed": "bold red", "improved": "green", "inconclusive": "yellow"}
_OUTCOME_STYLE = {Outcome.OK: "green", Outcome.UNSUPPORTED: "dim"}


def outcome_text(outcome: Outcome) -> Text:
    return Text(str(outcome), style=f"{_OUTCOME_STYLE.get(outcome, 'red')} link {outcome.url}")


def shorten_message(message: str) -> str:
    return "\n".join(visible(line) for line in message[:300].splitlines())


def set_caption(table: Table, messages: Sequence[str]) -> None:
    if messages:
        table.caption = Text("\n".join(map(shorten_message, messages)))
        table.caption_justify = "left"


def verdict(word: str) -> Text:
    return Text(visible(word), _VERDICT_STYLE.get(word, ""))


def joined(values: Iterable[str]) -> str:
    """Different values in their first order."""
    return " ".join(dict.fromkeys(values))


PeakShares = Mapping[CaseKey, float]
"""Of cases and implementations."""


def shares_of_peak(record: RunRecord) -> PeakShares:
    """Shares of the peaks that the datasheet of the device states."""
    published = compare_with_datasheet(record.ceilings, record.environment.device_name)
    shares: dict[CaseKey, float] = {}
    for measurement in record.measurements:
        roof = roof_of(record.case(measurement.case_id), record.ceilings, measurement.cache)
        share = share_of_peak(measurement.utilisation, roof.binding, published)
        if share is not None:
            shares[measurement.case_key] = share
    return shares
