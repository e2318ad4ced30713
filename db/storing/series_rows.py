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
    has_host_time: bool
    has_memory: bool

    @property
    def values(self) -> tuple[bool, ...]:
        """Which of the values that not every measurement has are there, in the order of `_FLAGS`."""
        return self[1:]


class _Known(NamedTuple):
    id: int
    values: tuple[bool, ...]


_FLAGS = Measured._fields[1:]
_STAGED = Target(
    "staged_series",
    {
        "case_version_id": "int4",
        "implementation": "text",
        "timer": "text",
        "cache": "text",
        **dict.fromkeys(_FLAGS, "bool"),
    },
)
_KNOWN = text(
    f"""
    SELECT case_version_id, implementation, timer, cache, id, {", ".join(_FLAGS)}
    FROM series
    WHERE runner_class = :runner_class AND case_version_id = ANY(
        ARRAY(SELECT json_array_elements_text(CAST(:version_ids AS json))::int)
    )
    """
)
# what is stored already is left alone before a conflict could use up an id
_NEW = text(
    f"""
    INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, {", ".join(_FLAGS)})
    SELECT case_version_id, implementation, timer, cache, :runner_class, {", ".join(_FLAGS)}
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
    f"""
    UPDATE series SET {", ".join(f"{flag} = {flag} OR id = ANY(CAST(:{flag} AS int[]))" for flag in _FLAGS)}
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
    more: dict[str, list[int]] = {flag: [] for flag in _FLAGS}
    for one, to in zip(measured, found, strict=True):
        if one.values != to.values:
            for flag, is_there, was_there in zip(_FLAGS, one.values, to.values, strict=True):
                if is_there > was_there:
                    more[flag].append(to.id)
    ids = [series_id for own in more.values() for series_id in own]
    if ids:
        connection.execute(_LOCK, {"ids": ids})
        connection.execute(_NOTE_MORE, {"ids": ids, **more})
    return [to.id for to in found]


def _known(
    connection: Connection, measured: Sequence[Measured], runner_class: str
) -> dict[tuple[int, str, str, str], _Known]:
    """By their identity."""
    version_ids = sorted({one.identity.case_version_id for one in measured})
    rows = connection.execute(_KNOWN, {"version_ids": as_json(version_ids), "runner_class": runner_class}).all()
    return {
        (version_id, implementation, timer, cache): _Known(series_id, tuple(values))
        for version_id, implementation, timer, cache, series_id, *values in rows
    }
