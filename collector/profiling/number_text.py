"""Numbers as profilers write them: which of comma and full stop is the decimal mark of a file."""

import math
import re
from collections.abc import Iterable
from enum import StrEnum

from roofwatch.model.errors import ProfileError

_MAX_INTEGER = 2**63
_EXPONENT = r"(?:[eE][-+]?\d+)?"
_POINT = re.compile(rf"[-+]?(?:\d+|[1-9]\d{{0,2}}(?:,\d{{3}})+)(?:\.\d*)?{_EXPONENT}")
"""`1234.5` and `1,234.5`."""
_COMMA = re.compile(
    rf"[-+]?(?:\d+|[1-9]\d{{0,2}}(?:[.'\s\u00a0\u202f]\d{{3}})+)(?:,\d*)?{_EXPONENT}"
)
"""`1234,5`, `1.234,5` and `1 234,5`."""
_GROUPING = re.compile(r"[.'\s\u00a0\u202f]")


class DecimalMark(StrEnum):
    POINT = "."
    COMMA = ","


def decimal_mark(texts: Iterable[str], name: str) -> DecimalMark:
    """Find the decimal mark of a file: a comma if any number can only be read with one.

    Raises:
        ProfileError: other numbers can only be read with a point.
    """
    only_comma = ""
    only_point = ""
    for text in texts:
        has_point_form = _POINT.fullmatch(text) is not None
        has_comma_form = _COMMA.fullmatch(text) is not None
        if has_comma_form and not has_point_form:
            only_comma = only_comma or text
        elif has_point_form and not has_comma_form:
            only_point = only_point or text
    if only_comma and only_point:
        raise ProfileError(
            f"{name}: {only_comma!r} has a decimal comma and {only_point!r} a decimal point; "
            f"export it again with LC_ALL=C"
        )
    if only_comma:
        return DecimalMark.COMMA
    return DecimalMark.POINT


def number(text: str, mark: DecimalMark = DecimalMark.POINT) -> float | None:
    """Parse a number; None for `n/a`, `nan` and nothing, which are missing values and never 0."""
    # texts of rules in a report keep the point, whatever the locale
    is_comma = mark is DecimalMark.COMMA and _COMMA.fullmatch(text) is not None
    if is_comma:
        plain = _GROUPING.sub("", text).replace(",", ".")
    else:
        plain = text.replace(",", "")
    try:
        value = float(plain)
    except ValueError:
        return None
    if value.is_integer() and "." not in plain and abs(value) < _MAX_INTEGER:
        return int(value)
    if math.isfinite(value):
        return value
    return None
