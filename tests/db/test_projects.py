"""Deletion of projects, and the status of the store."""

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.engine.migrate import read_status
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.projects import delete_project
from roofwatch.db.queries.project import list_projects
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from tests.builders import PROJECT, make_complete_record, make_record, make_regression
from tests.databases import ingest_all


def test_deleted_project_leaves_others_unchanged(store: Engine) -> None:
    ingest_all(store, *map(make_complete_record, range(2)))
    replace_regressions(store, PROJECT, [make_regression(1)])
    ingest_record(store, make_record(project="other"))

    delete_project(store, PROJECT)
    delete_project(store, "never there")

    with Session(store) as session:
        assert list_projects(session) == ["other"]
        assert list_triaged(session, PROJECT) == []
        assert len(list_runs(session, "other")) == 1
    counts = read_status(store).row_counts
    assert (counts["run"], counts["measurement"], counts["accuracy"], counts["static_fact"]) == (1, 1, 0, 0)


def test_status_names_the_server(store: Engine) -> None:
    status = read_status(store)

    assert status.server == f"{store.url.query['host']}:5432/{store.url.database}"
    assert status.server_version.startswith("18.")
    assert status.schema_revision is not None
    assert set(status.row_counts.values()) == {0}
