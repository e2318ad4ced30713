"""Text of values: marks, changes, times, amounts; and escaped text from records."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from html import escape

from roofwatch.ci.messages import count_of, on_one_line
from roofwatch.model.history import ChangePoint, CommitRef
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import Layer, Metric, format_ns, metric
from roofwatch.model.triage import TriageState
from roofwatch.model.verdict import Verdict

_NS_PER_MINUTE = 60e9
_NS_PER_HOUR = 3_600e9
_KILO = 1e3
_MEGA = 1e6
_LEAST_PERCENTAGE = 0.0005
_MAKERS = ("NVIDIA ", "AMD ", "Intel(R) ", "Apple ")


@dataclass(frozen=True)
class Mark:
    """A word with a symbol, so nothing depends on colour alone."""

    symbol: str
    word: str

    @property
    def text(self) -> str:
        return f"{self.symbol} {self.word}"


VERDICT_MARKS: Mapping[Verdict, Mark] = {
    Verdict.REGRESSED: Mark("◆", "regressed"),
    Verdict.IMPROVED: Mark("●", "improved"),
    Verdict.UNCHANGED: Mark("=", "unchanged"),
    Verdict.INCONCLUSIVE: Mark("?", "inconclusive"),
}

TRIAGE_MARKS: Mapping[TriageState, Mark] = {
    TriageState.NEW: Mark("○", "new"),
    TriageState.ACKNOWLEDGED: Mark("◐", "acknowledged"),
    TriageState.EXPECTED: Mark("≈", "expected"),
    TriageState.FIXED: Mark("✓", "fixed"),
    TriageState.INVALID: Mark("✕", "invalid"),
}


def outcome_text(outcome: Outcome) -> str:
    """Write an outcome as `✕ timed out`."""
    symbols = {
        Outcome.OK: "✓",
        Outcome.UNSUPPORTED: "○",
    }
    symbol = symbols.get(outcome, "✕")
    words = outcome.replace("_", " ")
    return f"{symbol} {words}"


def code_span(text: str) -> str:
    """Escape text from a record or an address as a Markdown code span."""
    flat = on_one_line(text) or " "
    # a fence must be longer than any run of backticks inside
    backticks = max(re.findall("`+", flat), key=len, default="")
    fence = backticks + "`"
    padding = ""
    if backticks:
        padding = " "
    return f"{fence}{padding}{flat}{padding}{fence}"


def escaped(text: str) -> str:
    """Escape text from a record for HTML or a figure, on one line and without characters that
    reorder it.
    """
    return escape(on_one_line(text))


def current_attribute(*, is_current: bool) -> str:
    """Write the attribute that marks what is chosen of a list in HTML."""
    if is_current:
        return ' aria-current="true"'
    return ""


def shortened(text: str, *, length: int = 80) -> str:
    flat = on_one_line(text)
    # the ellipsis counts as a character
    if len(flat) <= length:
        return flat
    return flat[: length - 1] + "…"


def natural_order(text: str) -> list[tuple[str, int]]:
    """Return a sort key with numbers in order: sm_90 before sm_100."""
    parts = re.findall(r"(\D*)(\d*)", text)
    return [(word, int(number or 0)) for word, number in parts]


def percent(relative_change: float) -> str:
    """Write a signed percentage, or a factor from a doubling on."""
    # `+150 %` is easily taken for 1.5 times
    if relative_change >= 1:
        return f"×{1 + relative_change:.3g}"
    # a sign before zero would say that something changed
    if abs(relative_change) < _LEAST_PERCENTAGE:
        return "0.0%"
    return f"{relative_change:+.1%}"


def transition_text(change_point: ChangePoint) -> str:
    """Write `1.2 ms → 1.6 ms`, with `failed` for a missing level."""
    write = change_point.series.definition.format

    def level_text(level: float | None) -> str:
        if level is None:
            return "failed"
        return write(level)

    base = level_text(change_point.before)
    head = level_text(change_point.after)
    return f"{base} → {head}"


def change_text(change_point: ChangePoint) -> str:
    """Write `+33.0%`, or both levels if there is no ratio."""
    change = change_point.relative_change
    # a change from zero, or to a failure, has no ratio
    if change is None:
        return transition_text(change_point)
    return percent(change)


def headline_text(change_point: ChangePoint) -> str:
    """Write the shortest description: `+33.0%`, `✕ incorrect`, `0 B → 96 B`, `+1.4% a week` of a
    drift.
    """
    if change_point.weekly_change is not None:
        return f"{percent(change_point.weekly_change)} a week"
    if change_point.after is None:
        if change_point.series.definition.layer is Layer.ACCURACY:
            return "✕ incorrect"
        return "✕ fails"
    return change_text(change_point)


def age_text(moment: datetime, *, now: datetime) -> str:
    """Write `3 hours ago`, rounded down."""
    age = now - moment
    for length, unit in (
        (timedelta(days=365), "year"),
        (timedelta(days=30), "month"),
        (timedelta(days=1), "day"),
        (timedelta(hours=1), "hour"),
        (timedelta(minutes=1), "minute"),
    ):
        count = age // length
        if count >= 1:
            return f"{count_of(count, unit)} ago"
    return "just now"


def choice_text(commit: CommitRef) -> str:
    """Write `1a2b3c4d  Fuse the epilogue`."""
    return f"{commit.short_sha}  {shortened(commit.subject, length=60)}"


def written(moment: datetime, zone: tzinfo) -> str:
    """Write `2026-03-01 13:00`."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}"


def date_written(moment: datetime, zone: tzinfo) -> str:
    """Write `2026-03-01`."""
    return f"{moment.astimezone(zone):%Y-%m-%d}"


def rate_text(resource: str, per_s: float) -> str:
    """Write `4.8 TB/s` for memory, `989 TFLOP/s` for arithmetic."""
    return rate_metric(resource).format(per_s)


def rate_metric(resource: str) -> Metric:
    """Return the metric of a ceiling's rate."""
    if resource == "memory":
        return metric("memory_bytes_per_s")
    return metric("flop_per_s")


def duration_text(ns: float) -> str:
    """Write `1.5 ms`, `4.2 min` or `3.1 h`."""
    if ns >= _NS_PER_HOUR:
        hours = ns / _NS_PER_HOUR
        # three digits would round large sums
        if hours < 1_000:
            return f"{hours:,.3g} h"
        return f"{hours:,.0f} h"
    if ns >= _NS_PER_MINUTE:
        return f"{ns / _NS_PER_MINUTE:.3g} min"
    return format_ns(ns)


def energy_text(joules: float) -> str:
    """Write `12 kJ`, or smaller units."""
    if joules >= _MEGA:
        return f"{joules / _MEGA:,.3g} MJ"
    if joules >= _KILO:
        return f"{joules / _KILO:.3g} kJ"
    return metric("joules_per_launch").format(joules)


def money_text(amount: float, currency: str) -> str:
    """Write `3.20 USD`; small amounts keep two significant digits."""
    if amount >= 0.01 or amount == 0:
        return f"{amount:,.2f} {currency}"
    return f"{amount:.2g} {currency}"


def short_date(moment: datetime, zone: tzinfo) -> str:
    """Write `3 Mar`, or `3 Mar 25` of another year."""
    local = moment.astimezone(zone)
    if local.year == datetime.now(zone).year:
        return f"{local:%-d %b}"
    return f"{local:%-d %b %y}"


def device_text(runner_class: str) -> str:
    """Write the name of a runner's device without its maker."""
    # the class is device, memory and power limit
    device = runner_class.partition(",")[0]
    for maker in _MAKERS:
        device = device.removeprefix(maker)
    return shortened(device, length=24)
