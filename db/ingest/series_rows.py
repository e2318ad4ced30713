"""The series of measurements in the store: found, or stored by the first run that measures them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from sqlalchemy import Connection, text

from roofwatch.collector.record.measurement import Measurement
from roofwatch.db.ingest.copy import stage_rows
from roofwatch.db.ingest.shared_rows import as_json


class Identity(NamedTuple):
    """What makes a series, together with the runner class."""

    case_version_id: int
    implementation: str
    timer: str
    cache: str


FLAGS = {
    "has_utilisation": "utilisation",
    "has_energy": "joules_per_launch",
    "has_host_time": "host_ns",
    "has_memory": "peak_allocated_bytes",
}
"""What a series says of the values that not every measurement has: whether any of its own has one, by the column."""
_STAGED = {"case_version_id": "int4", "implementation": "text", "timer": "text", "cache": "text"}
_KNOWN = text(
    """
    SELECT case_version_id, implementation, timer, cache, id
    FROM series
    WHERE runner_class = :runner_class AND case_version_id = ANY(
        ARRAY(SELECT json_array_elements_text(CAST(:version_ids AS json))::int)
    )
    """
)
# what is stored already is left alone before a conflict could use up an id
_NEW = text(
    f"""
    INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, {", ".join(FLAGS)})
    SELECT case_version_id, implementation, timer, cache, :runner_class, {", ".join(["false"] * len(FLAGS))}
    FROM staged_series staged
    WHERE NOT EXISTS (
        SELECT FROM series
        WHERE series.case_version_id = staged.case_version_id AND series.implementation = staged.implementation
            AND series.timer = staged.timer AND series.cache = staged.cache AND series.runner_class = :runner_class
    )
    ORDER BY case_version_id, implementation, timer, cache
    ON CONFLICT DO NOTHING
    """
)
_SET = " | ".join(f"{flag}::int << {place}" for place, flag in enumerate(FLAGS))
_LACKING = text(
    f"""
    SELECT series.id FROM ROWS FROM (
        json_array_elements_text(CAST(:ids AS json)), json_array_elements_text(CAST(:flags AS json))
    ) measured (id, flags)
    JOIN series ON series.id = measured.id::int
    WHERE measured.flags::int & ~({_SET}) > 0
    ORDER BY series.id
    FOR NO KEY UPDATE OF series
    """
)
_NOTE_MORE = text(
    f"""
    UPDATE series SET {", ".join(f"{flag} = {flag} OR id = ANY(CAST(:{flag} AS int[]))" for flag in FLAGS)}
    WHERE id = ANY(CAST(:ids AS int[]))
    """
)


def series_ids(connection: Connection, identities: Sequence[Identity], runner_class: str) -> list[int]:
    """Ids of the series, in the order in which they are given. What new ones have values of is for `note_values`."""
    known = _known(connection, identities, runner_class)
    missing = [one for one in identities if one not in known]
    if missing:
        stage_rows(connection, "staged_series", _STAGED, missing)
        connection.execute(_NEW, {"runner_class": runner_class})
        known = _known(connection, identities, runner_class)
    return [known[one] for one in identities]


def are_there(measurements: Sequence[Measurement]) -> dict[str, list[bool]]:
    """By flag of series whether each measurement has the value."""
    return {
        "has_utilisation": [one.utilisation is not None for one in measurements],
        "has_energy": [one.joules_per_launch is not None for one in measurements],
        "has_host_time": [one.host_ns is not None for one in measurements],
        "has_memory": [one.memory is not None and bool(one.blocks) for one in measurements],
    }


def note_values(connection: Connection, series_ids: Sequence[int], are_there: Mapping[str, Sequence[bool]]) -> None:
    """Have series say that they have values that they had none of.

    Rows that others may wait for are locked here, by their ids: after all that a run shares was stored, since whoever
    stores that may wait for others himself.

    Args:
        connection: In the transaction that stores the measurements.
        series_ids: Of each measurement.
        are_there: By flag whether each has the value that `FLAGS` names.
    """
    columns = [are_there[flag] for flag in FLAGS]
    flags = [sum(one << place for place, one in enumerate(each)) for each in zip(*columns, strict=True)]
    ids = connection.scalars(_LACKING, {"ids": as_json(series_ids), "flags": as_json(flags)}).all()
    if ids:
        lacking = set(ids)
        more = {flag: [one for one in compress(series_ids, are_there[flag]) if one in lacking] for flag in FLAGS}
        connection.execute(_NOTE_MORE, {"ids": ids, **more})


def _known(connection: Connection, identities: Sequence[Identity], runner_class: str) -> dict[Identity, int]:
    version_ids = sorted({one.case_version_id for one in identities})
    rows = connection.execute(_KNOWN, {"version_ids": as_json(version_ids), "runner_class": runner_class}).all()
    return {Identity._make(identity): series_id for *identity, series_id in rows}
