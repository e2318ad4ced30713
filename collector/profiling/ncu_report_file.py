"""Nsight Compute's own reports, `.ncu-rep`, through NVIDIA's `ncu_report` module, which needs no GPU."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roofwatch.collector.profiling.ncu_metrics import Metric, facts, normalised
from roofwatch.collector.profiling.source import ProfileError, read_bytes

MAGIC = b"NVR\x00"
_MESSAGE_TYPES = {1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
"""What the details page calls the module's `MsgType`."""
_SCOPES = {1: "local", 2: "global"}
"""Likewise its `SpeedupType`: of what the rule looks at, or of the whole kernel."""
_LINK = re.compile(r"@(?:url:([^:@]*):[^@]*|(?:section|sass):[^:@]*:([^@]*)|source:[^@]*:([^@:]*))@")
"""To what the tool would open: a page by its words, a section or address by its name, a line of a file likewise."""
_PAYLOAD_SIZE_FIELD = 5
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def is_report_readable() -> bool:
    """Whether NVIDIA's module is installed."""
    try:
        import ncu_report
    except ImportError:
        return False
    return bool(ncu_report)


def read_ncu_report(path: Path) -> dict[str, Any]:
    """What the report says of each kernel.

    Raises:
        ProfileError: the module is not installed, or cannot read the file.
    """
    try:
        import ncu_report
    except ImportError:
        raise ProfileError(
            f"{path}: reading a report of Nsight Compute takes its module; install it with: pip install ncu-report, or "
            "export the report with: ncu --import FILE --page raw --csv"
        ) from None
    if not _is_whole(read_bytes(path)):
        # the module would read what is left without a word
        raise ProfileError(f"{path}: not a whole report of Nsight Compute; copy it or record it again")
    try:
        context = ncu_report.load_report(str(path))
    except Exception as error:  # noqa: BLE001  the module raises what its native part likes
        raise ProfileError(f"{path}: not a whole report of Nsight Compute ({error}); record it again") from None
    ranges = [context.range_by_idx(at) for at in range(context.num_ranges())]
    try:
        kernels = [
            _kernel(number, at, found.action_by_idx(step))
            for at, found in enumerate(ranges)
            for number, step in enumerate(range(found.num_actions()), start=_actions_before(ranges, at))
        ]
    except (TypeError, UnicodeError) as error:  # of the module, for a name that is no text
        raise ProfileError(f"{path}: a damaged report of Nsight Compute ({error}); record it again") from None
    return {"format": "ncu-rep", "read_with": "ncu_report wheel", "ranges": len(ranges), "kernels": kernels}


def _actions_before(ranges: list[Any], at: int) -> int:
    return sum(found.num_actions() for found in ranges[:at])


def _kernel(number: int, range_index: int, action: Any) -> dict[str, Any]:
    names = list(action.metric_names())
    metrics = {name: [_metric(action.metric_by_name(name))] for name in names}

    def value(name: str) -> Any:
        found = metrics.get(name)
        return None if found is None or found[0].value is None else found[0].value

    grid = [int(value(f"launch__grid_dim_{axis}") or 1) for axis in "xyz"]
    block = [int(value(f"launch__block_dim_{axis}") or 1) for axis in "xyz"]
    major = value("device__attribute_compute_capability_major")
    minor = value("device__attribute_compute_capability_minor")
    name_of_device = action.metric_by_name("device__attribute_display_name")
    return {
        "id": str(number),
        "range": range_index,
        "name": action.name(),
        "metric_names": len(names),
        "grid": grid,
        "block": block,
        "grid_size_blocks": value("launch__grid_size"),
        "block_size_threads": value("launch__block_size"),
        "device": None if name_of_device is None else name_of_device.as_string(),
        "compute_capability": None if major is None else f"{major:.0f}.{minor:.0f}",
        **facts(metrics),
        "findings": [_finding(rule) for rule in action.rule_results_as_dicts()],
    }


def _finding(rule: dict[str, Any]) -> dict[str, Any]:
    """The same of a rule as the details page has."""
    message, estimate = rule.get("rule_message", {}), rule.get("speedup_estimation", {})
    scope = _SCOPES.get(int(estimate.get("type", 0)))
    return {
        "rule": rule["rule_identifier"],
        "type": _MESSAGE_TYPES.get(int(message.get("type", 0)), ""),
        "title": message.get("title", ""),
        "message": _LINK.sub(_words_of, message.get("message", "")),
        "estimated_speedup_pct": None if scope is None else estimate["speedup"],
        "speedup_scope": scope,
    }


def _words_of(link: re.Match[str]) -> str:
    return next(filter(None, link.groups()), "")


def _metric(metric: Any) -> Metric:
    value = metric.value()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    number = value if is_number else None
    return normalised(number, metric.unit() or "")


def _is_whole(content: bytes) -> bool:
    """Whether the last block ends where the file does.

    Source: Nsight Compute documentation, report file format: after the magic a header, then blocks; a header and a
    block's head are protobuf messages after their length, and a head says how many bytes of payload follow.
    """
    at = len(MAGIC)
    try:
        at += 4 + _int32(content, at)
        while at < len(content):
            head_bytes = _int32(content, at)
            head = content[at + 4 : at + 4 + head_bytes]
            at += 4 + head_bytes + dict(_numbers(head)).get(_PAYLOAD_SIZE_FIELD, 0)
    except (struct.error, IndexError, ValueError):
        return False
    return at == len(content)


def _int32(content: bytes, at: int) -> int:
    value: int = struct.unpack_from("<i", content, at)[0]
    return value


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """Field number and value of a protobuf message's whole numbers."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield field, value
        elif kind == _BYTES:
            length, at = _varint(message, at)
            at += length
        elif kind in {_FIXED_32, _FIXED_64}:
            at += 4 if kind == _FIXED_32 else 8
        else:
            raise ValueError(f"no protobuf message: a field of kind {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
