"""What one cell of a table says: a number with its unit, an outcome without a number, or a time."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from roofwatch.collector.profiling.number_text import DecimalMark, decimal_mark, number
from roofwatch.model.machine import Outcome

_ABSENT = frozenset({"", "-", "--", "null", "none", "<na>"})
"""A cell of these has no value, which is no failure."""
_OUTCOMES = (
    (Outcome.OK, re.compile(r"ok|pass(ed)?|success(ful)?|succeeded|completed?|true|1|1\.0")),
    (Outcome.OUT_OF_MEMORY, re.compile(r".*(\boom\b|out[ _]of[ _]memory|outofmemory).*")),
    (Outcome.TIMED_OUT, re.compile(r".*\btime(d[ _-]?)?[ _-]?out.*")),
    (Outcome.COMPILE_ERROR, re.compile(r".*compil(e|ation)[ _-]?(error|fail).*")),
    (Outcome.UNSUPPORTED, re.compile(r"n[./]?a\.?|not[ _](supported|available|run)|unsupported")),
    (Outcome.UNSUPPORTED, re.compile(r"skip(ped)?\b.*|disabled|missing")),
    (Outcome.INCORRECT, re.compile(r"incorrect|wrong.*|mismatch.*|(accuracy|verif).*fail.*")),
    (Outcome.INCORRECT, re.compile(r"false|0|0\.0")),
    (Outcome.CRASHED, re.compile(r"[-+]?(inf(inity)?|nan)|.*(error|exception|fail|crash).*")),
)
"""What a text in lower case stands for; the first pattern counts."""
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_WITH_UNIT = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>[a-zA-Zµμ%×][\w/%µμ²·.]*)")
_AMBIGUOUS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")
"""`1,234` is 1234, or 1.234 with a decimal comma."""
_DIGITS_OF_DATE = 8
_EPOCH_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Smallest number of nanoseconds, microseconds and milliseconds since 1970, and its scale."""
_FIRST_SECOND = 1e8
_LAST_SECOND = 4e9
"""A smaller or larger number is no time of a measurement."""


@dataclass(frozen=True)
class Cell:
    """What was read. An absent value has none of the fields."""

    number: float | None = None
    unit: str = ""
    """If the cell names it."""
    outcome: Outcome | None = None
    """Of a failure that stands in place of a number."""
    unreadable: str = ""
    """Text that is none of these."""


def read_cell(value: object, mark: DecimalMark = DecimalMark.POINT) -> Cell:
    """Read a cell of a table or a value of JSON.

    Args:
        value: As the file has it.
        mark: Decimal mark of the file.
    """
    if value is None:
        return Cell()
    # JSON's true and false are numbers in Python
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return Cell(number=value)
        return Cell(outcome=Outcome.CRASHED)
    text = str(value).strip()
    if text.lower() in _ABSENT:
        return Cell()
    # 1,234 may be a thousand or one and a bit
    if mark is DecimalMark.POINT and _AMBIGUOUS.fullmatch(text):
        return Cell(unreadable=text)
    parsed = number(text, mark)
    if parsed is not None:
        return Cell(number=parsed)
    with_unit = _WITH_UNIT.fullmatch(text)
    if with_unit is not None:
        return Cell(number=float(with_unit["number"]), unit=with_unit["unit"])
    # tools write `OOM` or `failed` where a number should be
    outcome = outcome_of(text)
    if outcome is None or outcome is Outcome.OK or isinstance(value, bool):
        return Cell(unreadable=text)
    return Cell(outcome=outcome)


def mark_of(values: Iterable[object], name: str) -> DecimalMark:
    """Find the decimal mark of a file.

    Raises:
        ProfileError: some numbers can only be read with a comma, and others only with a point.
    """
    return decimal_mark((value.strip() for value in values if isinstance(value, str)), name)


def outcome_of(text: str) -> Outcome | None:
    """Tell the outcome that a text stands for; None if it stands for none."""
    plain = text.strip().lower()
    for outcome, pattern in _OUTCOMES:
        if pattern.fullmatch(plain):
            return outcome
    return None


def seconds_of(value: object) -> float | None:
    """Read a time as seconds since 1970: ISO 8601, the form of mails, `YYYYMMDD`, or a number of
    seconds up to nanoseconds. Without a zone it is in UTC.
    """
    text = str(value).strip()
    if text.isdecimal() and len(text) == _DIGITS_OF_DATE:
        text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    elif re.fullmatch(_NUMBER, text):
        return _seconds_of_epoch(float(text))
    time = _parse_time(text.removesuffix(" UTC").removesuffix(" GMT"))
    if time is None:
        return None
    with_zone = time if time.tzinfo else time.replace(tzinfo=UTC)
    return with_zone.timestamp()


def _seconds_of_epoch(count: float) -> float | None:
    for smallest, per_second in _EPOCH_UNITS:
        if count >= smallest:
            count /= per_second
            break
    if _FIRST_SECOND < count < _LAST_SECOND:
        return count
    return None


def _parse_time(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return parse(text)
        except ValueError:
            continue
    return None
