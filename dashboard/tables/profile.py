"""What a profiler saw of a case, as a table. Text from records stays text."""

from __future__ import annotations

import pandas as pd

from roofwatch.collector.record.results import CaseProfile, ProfiledActivity

_EXTENTS = ("grid", "block")


def profile_table(profile: CaseProfile) -> pd.DataFrame:
    """A row for what is told one by one, the longest in all first, and one for the rest together; no column that says
    nothing.
    """
    rows = [_row(row, profile) for row in profile.rows]
    if profile.left_out_count:
        rest = dict.fromkeys(("kind", "device", *_EXTENTS), "") | {"name": f"{profile.left_out_count:,} more together"}
        rows.append(rest | _time(profile.left_out_ns, profile))
    frame = pd.DataFrame(rows)
    unknown = [name for name in _EXTENTS if name in frame and not any(frame[name])]
    return frame.drop(columns=unknown).dropna(axis="columns", how="all")


def _row(row: ProfiledActivity, profile: CaseProfile) -> dict[str, object]:
    return {
        "kind": row.kind,
        "name": row.name,
        "device": row.device,
        **_time(row.total_ns, profile),
        "of a call": row.count / profile.call_count,
        "mean": row.mean_ns,
        "longest": row.max_ns,
        "bytes": row.bytes,
        **{name: _extent(getattr(row, name)) for name in _EXTENTS},
        "registers": row.registers,
        "shared memory": row.shared_bytes,
        "occupancy": row.estimated_occupancy,
    }


def _time(total_ns: int, profile: CaseProfile) -> dict[str, object]:
    """A call's, and what it is of the time in which anything was under way."""
    return {
        "time of a call": total_ns / profile.call_count,
        "share": total_ns / profile.busy_ns if profile.busy_ns else None,
    }


def _extent(dimensions: tuple[int, ...]) -> str:
    return " × ".join(map(str, dimensions))
