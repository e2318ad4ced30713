"""Retention: old data is removed, data that is still needed is kept."""

from collections.abc import Sequence
from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.errors import StoreError
from roofwatch.db.ingest.artefacts import list_artefacts, read_artefact, store_artefact
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.retention import Part, Pruned, prune
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.series import read_series
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import RegressionState
from roofwatch.model.machine import Telemetry
from roofwatch.model.record import RunRecord
from roofwatch.model.triage import TriageState
from tests.builders import (
    NOON,
    PROJECT,
    make_artefact,
    make_change_point,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
)
from tests.databases import ingest_all, set_triage

NOW = NOON + timedelta(days=100)
TELEMETRY = Telemetry(
    status="ok", started_at=NOON, offset_ms=(0.0, 50.0), sm_clock_mhz=(1980.0, None)
)


def days_old(number: int, age_days: int, **fields: Any) -> RunRecord:
    """The numbered commit, measured some days before NOW."""
    started_at = NOW - timedelta(days=age_days)
    return make_record(
        number, started_at=started_at, finished_at=started_at + timedelta(minutes=5), **fields
    )


def prune_all(
    store: Engine, *parts: Part, days: int = 30, is_dry_run: bool = False
) -> list[Pruned]:
    return prune(
        store,
        dict.fromkeys(parts or (Part.SAMPLES, Part.TELEMETRY), days),
        now=NOW,
        is_dry_run=is_dry_run,
        actor="a test",
    )


def with_samples(store: Engine, records: Sequence[RunRecord]) -> list[int]:
    """Numbers of the records that still have their samples."""
    whole = []
    with Session(store) as session:
        for number, record in enumerate(records):
            try:
                load_record(session, record.run_id)
            except StoreError:
                continue
            whole.append(number)
    return whole


def stored(store: Engine, *records: RunRecord) -> list[RunRecord]:
    ingest_all(store, *records)
    return list(records)


def test_samples_of_old_runs_are_removed_except_the_newest_of_a_series(store: Engine) -> None:
    both = [make_measurement(), make_measurement(implementation="triton")]
    of_both = days_old(0, 95, measurements=both)
    records = stored(store, of_both, *(days_old(number, 90 - number) for number in range(4)))
    with Session(store) as session:
        before = read_series(session, PROJECT)

    (pruned,) = prune_all(store, Part.SAMPLES)

    assert pruned.run_count == 3
    assert pruned.size_bytes > 0
    assert with_samples(store, records) == [0, 4]
    with Session(store) as session:
        assert read_series(session, PROJECT) == before, "medians and quartiles stay"
    assert before


@pytest.mark.parametrize(
    "later",
    [
        {"environment": make_environment(device_name="Another CPU")},
        {"commit": make_commit(2, branch="feature")},
        {"commit": make_commit(2, is_dirty=True)},
    ],
    ids=["another runner class", "another branch", "a changed work tree"],
)
def test_later_runs_elsewhere_do_not_replace_a_run(store: Engine, later: dict[str, Any]) -> None:
    records = stored(store, days_old(1, 90), days_old(2, 80, **later))

    prune_all(store, Part.SAMPLES)

    assert 0 in with_samples(store, records)


def test_runs_of_open_regressions_are_kept(store: Engine) -> None:
    records = stored(store, *(days_old(number, 90 - number) for number in range(6)))
    found = make_regression(2, change_points=(make_change_point(2),))
    replace_regressions(store, PROJECT, [found])

    prune_all(store, Part.SAMPLES)
    assert with_samples(store, records) == [1, 2, 5], (
        "the commit before, the commit, and the newest"
    )

    set_triage(
        store,
        PROJECT,
        regression_id(found),
        TriageState.ACKNOWLEDGED,
        person="p",
        reason="r",
        actor="a test",
    )
    prune_all(store, Part.SAMPLES)
    assert with_samples(store, records) == [1, 2, 5]

    set_triage(
        store,
        PROJECT,
        regression_id(found),
        TriageState.FIXED,
        person="p",
        reason="r",
        actor="a test",
    )
    prune_all(store, Part.SAMPLES)
    assert with_samples(store, records) == [5]


def test_old_regressions_that_are_no_longer_found_are_removed_with_their_samples(
    store: Engine,
) -> None:
    records = stored(store, *(days_old(number, 90 - number) for number in range(6)))
    replace_regressions(
        store, PROJECT, [make_regression(2, change_points=(make_change_point(2),), is_alert=True)]
    )
    replace_regressions(store, PROJECT, [])

    prune_all(store, Part.SAMPLES, days=200)
    with Session(store) as session:
        assert [one.regression.state for one in list_triaged(session, PROJECT)] == [
            RegressionState.NO_LONGER_FOUND
        ]
    (counted,) = prune_all(store, Part.SAMPLES, is_dry_run=True)
    (pruned,) = prune_all(store, Part.SAMPLES)

    with Session(store) as session:
        assert list_triaged(session, PROJECT) == []
    assert with_samples(store, records) == [5]
    assert counted == pruned


def test_telemetry_is_removed_from_records(store: Engine) -> None:
    first, second = stored(
        store, days_old(1, 90, telemetry=TELEMETRY), days_old(2, 80, telemetry=TELEMETRY)
    )

    (pruned,) = prune_all(store, Part.TELEMETRY)

    assert pruned.run_count == 1
    with Session(store) as session:
        assert load_record(session, first.run_id) == first.model_copy(update={"telemetry": None})
        assert load_record(session, second.run_id) == second


def test_quarantined_runs_are_deleted_by_ingest_time(store: Engine) -> None:
    (trusted,) = stored(store, days_old(1, 90))
    for number in (1, 2):
        ingest_record(store, days_old(number, 90), is_quarantined=True)
    with store.begin() as connection:
        connection.execute(
            text("UPDATE run SET ingested_at = :then"), {"then": NOW - timedelta(days=90)}
        )
        young = (
            "UPDATE run SET ingested_at = :now WHERE run_id = (SELECT run_id FROM run r JOIN "
            "commit c ON c.id = "
        )
        young += (
            "r.commit_id JOIN project p ON p.id = c.project_id WHERE p.name LIKE "
            "'%?quarantine' LIMIT 1)"
        )
        connection.execute(text(young), {"now": NOW})

    (pruned,) = prune_all(store, Part.QUARANTINED)

    assert pruned.run_count == 1
    assert verify_store(store).run_count == 2
    assert with_samples(store, [trusted]) == [0]


def test_dry_run_only_counts(store: Engine) -> None:
    records = stored(
        store, *(days_old(number, 90 - number, telemetry=TELEMETRY) for number in range(3))
    )
    ingest_record(store, days_old(1, 90), is_quarantined=True)
    with store.begin() as connection:
        connection.execute(
            text("UPDATE run SET ingested_at = :then"), {"then": NOW - timedelta(days=90)}
        )

    planned = prune_all(store, *Part, is_dry_run=True)
    untouched = verify_store(store)
    done = prune_all(store, *Part)

    assert untouched.proven_count == 4
    assert planned == done
    assert [one.run_count for one in done] == [2, 2, 0, 1]
    after = verify_store(store)
    assert (after.is_whole, after.proven_count, after.aged_count) == (True, 1, 2)
    assert with_samples(store, records) == [2]


@pytest.fixture
def traced(store: Engine) -> list[RunRecord]:
    """Three runs of three days, the newest last, each with one trace."""
    trace = make_artefact(b"a trace")
    records = stored(
        store, *(days_old(number, 90 - number, artefacts=(trace,)) for number in range(3))
    )
    for record in records:
        store_artefact(store, record.run_id, trace.sha256, BytesIO(b"a trace"))
    return list(records)


def test_artefacts_are_removed_but_those_of_the_newest_run(
    store: Engine, traced: list[RunRecord]
) -> None:
    (pruned,) = prune_all(store, Part.ARTEFACTS)

    assert pruned.run_count == 2
    with Session(store) as session:
        are_stored = [list_artefacts(session, record.run_id)[0].is_stored for record in traced]
    assert are_stored == [False, False, True], "new runs are compared with the newest"
    newest = traced[-1]
    sha256 = make_artefact(b"a trace").sha256
    assert b"".join(read_artefact(store, newest.run_id, sha256)) == b"a trace"


def test_names_of_removed_artefacts_stay(store: Engine, traced: list[RunRecord]) -> None:
    prune_all(store, Part.ARTEFACTS)

    with Session(store) as session:
        assert load_record(session, traced[0].run_id) == traced[0]
