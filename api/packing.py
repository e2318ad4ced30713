"""Whether an answer may be packed."""

from __future__ import annotations

import re

_NEVER = re.compile(r"q=0(\.0{0,3})?")


def takes_gzip(accepted: str) -> bool:
    """What the header Accept-Encoding says of gzip. Source: RFC 9110, 12.5.3."""
    weights: dict[str, str] = {}
    for one in accepted.lower().split(","):
        name, _, weight = one.partition(";")
        weights[name.strip()] = weight.strip()
    weight = weights.get("gzip", weights.get("*", "q=0"))
    return _NEVER.fullmatch(weight) is None
