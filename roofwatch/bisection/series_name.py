"""One series of a suite, as people name it: a case and an implementation."""

from __future__ import annotations

from roofwatch.collector.errors import CollectorError, SuiteError
from roofwatch.collector.run_plan import Selection
from roofwatch.collector.workers.protocol import SuiteInfo

_DIRECTIONS = frozenset({"fwd", "bwd"})


def parse_series(text: str) -> tuple[str, str | None]:
    """Case and implementation of `KERNEL/CASE[/IMPLEMENTATION]`.

    Raises:
        SuiteError: it is no such thing.
    """
    parts = text.split("/")
    if len(parts) > 2 and parts[-1] in _DIRECTIONS:
        return text, None
    if len(parts) > 3 and parts[-2] in _DIRECTIONS:
        return "/".join(parts[:-1]), parts[-1]
    raise SuiteError(
        f"series {text!r}: write KERNEL/CASE/fwd or KERNEL/CASE/fwd/IMPLEMENTATION; roofwatch list --json has the cases"
    )


def choose_implementation(info: SuiteInfo, case_id: str, implementation: str | None) -> str:
    """The implementation that is meant.

    Raises:
        SuiteError: the suite has no such series, or several and none is named.
    """
    selection = Selection((case_id.partition("/")[0],), ("*",), None, None, (literal_pattern(case_id),))
    found = [one.implementation for one in selection.of(info) if one.case.case_id == case_id]
    names = [one.name for one in found if info.device != "cpu" or one.language == "torch"]
    if implementation is not None and implementation in names:
        return implementation
    if implementation is None and len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    raise SuiteError(f"series {case_id}: name one of its implementations that can be timed on this device: {known}")


def missing_from(info: SuiteInfo | None, case_id: str, implementation: str) -> str:
    try:
        if info is not None:
            choose_implementation(info, case_id, implementation)
    except CollectorError as error:
        return str(error)
    return ""


def literal_pattern(name: str) -> str:
    """A shell pattern that matches a name alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
