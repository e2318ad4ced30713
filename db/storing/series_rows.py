"""The series of measurements in the store: found, or stored by the first run that measures them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text

from db.storing.shared_rows import as_json
from db.storing.staging import Load, Target, stage_rows


class Identity(NamedTuple):
    """What makes a series, together with the runner class."""

    case_version_id: int
    implementation: str
    timer: str
    cache: str


class Measured(NamedTuple):
    """A series of which there is a measurement."""

    identity: Identity
    has_utilisation: bool
    has_energy: bool


class _Known(NamedTuple):
    id: int
    has_utilisation: bool
    has_energy: bool


_STAGED = Target(
    "staged_series",
    {
        "case_version_id": "int4",
        "implementation": "text",
        "timer": "text",
        "cache": "text",
        "has_utilisation": "bool",
        "has_energy": "bool",
    },
)
_KNOWN = text(
    """
    SELECT case_version_id, implementation, timer, cache, id, has_utilisation, has_energy
    FROM series
    WHERE runner_class = :runner_class AND case_version_id = ANY(
        ARRAY(SELECT json_array_elements_text(CAST(:version_ids AS json))::int)
    )
    """
)
# what is stored already is left alone before a conflict could use up an id
_NEW = text(
    """
    INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, has_utilisation, has_energy)
    SELECT case_version_id, implementation, timer, cache, :runner_class, has_utilisation, has_energy
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
_LOCK = text("SELECT FROM series WHERE id = ANY(CAST(:ids AS int[])) ORDER BY id FOR NO KEY UPDATE")
_NOTE_MORE = text(
    """
    UPDATE series SET
        has_utilisation = has_utilisation OR id = ANY(CAST(:utilised AS int[])),
        has_energy = has_energy OR id = ANY(CAST(:metered AS int[]))
    WHERE id = ANY(CAST(:ids AS int[]))
    """
)


def series_ids(connection: Connection, measured: Sequence[Measured], runner_class: str) -> list[int]:
    """Ids of the series, in the order in which they are given."""
    known = _known(connection, measured, runner_class)
    missing = [one for one in measured if one.identity not in known]
    if missing:
        rows = ((*identity, *values) for identity, *values in missing)
        stage_rows(connection, Load(_STAGED, rows))
        connection.execute(_NEW, {"runner_class": runner_class})
        known = _known(connection, measured, runner_class)
    found = [known[one.identity] for one in measured]
    utilised = [to.id for one, to in zip(measured, found, strict=True) if one.has_utilisation > to.has_utilisation]
    metered = [to.id for one, to in zip(measured, found, strict=True) if one.has_energy > to.has_energy]
    if utilised or metered:
        ids = [*utilised, *metered]
        connection.execute(_LOCK, {"ids": ids})
        connection.execute(_NOTE_MORE, {"ids": ids, "utilised": utilised, "metered": metered})
    return [to.id for to in found]


def _known(
    connection: Connection, measured: Sequence[Measured], runner_class: str
) -> dict[tuple[int, str, str, str], _Known]:
    """By their identity."""
    version_ids = sorted({one.identity.case_version_id for one in measured})
    rows = connection.execute(_KNOWN, {"version_ids": as_json(version_ids), "runner_class": runner_class})
    return {
        (version_id, implementation, timer, cache): _Known(series_id, has_utilisation, has_energy)
        for version_id, implementation, timer, cache, series_id, has_utilisation, has_energy in rows
    }
