"""Restricted projects: who may read them, and what the views for other tools show."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from roofwatch.db.access import list_entries
from roofwatch.db.errors import StoreError
from roofwatch.db.project_access import (
    EVERY_PROJECT,
    ProjectAccess,
    list_readable,
    restrict_project,
    unrestrict_project,
)
from roofwatch.db.projects import quarantine_name
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import PROJECT, make_record, make_regression
from tests.databases import ingest_all, reading_role

OPEN = "open/project"
ADA = ("ada@example.com", "@example.com", "group:gpu")


def test_only_a_reader_of_the_list_may_read() -> None:
    for reader in (*ADA, "@example.com"):
        access = ProjectAccess({PROJECT: frozenset([reader, "eve@example.org"])})
        assert access.may_read(PROJECT, ADA), reader
        assert access.may_read(quarantine_name(PROJECT), ADA), reader
    for reader in ("", "@", "example.com", "@ample.com", "gpu", "role:gpu", "group:gp", "@EXAMPLE"):
        access = ProjectAccess({PROJECT: frozenset([reader])})
        assert not access.may_read(PROJECT, ADA), reader
        assert not access.may_read(quarantine_name(PROJECT), ADA), reader
        assert not access.may_read(PROJECT, ()), reader
        assert access.may_read(OPEN, ()), reader
    nobody = ProjectAccess({PROJECT: frozenset()})
    assert not nobody.may_read(PROJECT, ADA)


def test_a_project_can_be_restricted_before_it_is_stored(
    store: Engine,
) -> None:
    restrict_project(store, EVERY_PROJECT, ["Ada@Example.com"], actor="a test")
    restrict_project(store, PROJECT, ["group:gpu", "@example.org"], actor="a test")

    def readable(*names: str) -> list[str]:
        with Session(store) as session:
            return list_readable(session, (OPEN, PROJECT), names)

    assert readable() == []
    assert readable("ada@example.com", "@example.com") == [OPEN]
    assert readable("group:gpu") == [PROJECT]
    unrestrict_project(store, EVERY_PROJECT, actor="a test")
    assert readable() == [OPEN]
    with Session(store) as session:
        (entry,) = list_entries(session, PROJECT)
    assert (entry.action, entry.after) == ("project.restrict", "group:gpu @example.org")


def test_a_reader_of_no_known_form_is_refused(store: Engine) -> None:
    for reader in ("", "ada", "@", "group:", "ada@", "two words@example.com", "token:1@x"):
        with pytest.raises(StoreError, match=r"use name@example\.com, @example\.com, group:NAME"):
            restrict_project(store, PROJECT, [reader], actor="a test")
    with pytest.raises(StoreError, match="not restricted"):
        unrestrict_project(store, PROJECT, actor="a test")


def test_views_show_a_restricted_project_to_a_named_role_only(store: Engine) -> None:
    for project in (OPEN, PROJECT):
        ingest_all(store, *(make_record(number, project=project) for number in range(2)))
        replace_regressions(store, project, [make_regression(1, project=project)])
    with reading_role(store, views_only=True) as url:
        engine = create_engine(url)

        def shown() -> list[set[str]]:
            with engine.connect() as connection:
                return [
                    set(connection.scalars(text(f"SELECT project FROM {view}")))
                    for view in ("series_point", "regression_point")
                ]

        assert shown() == [{OPEN, PROJECT}] * 2
        restrict_project(store, PROJECT, ["@example.com", "role:another"], actor="a test")
        assert shown() == [{OPEN}] * 2
        restrict_project(store, PROJECT, [f"role:{url.username}"], actor="a test")
        assert shown() == [{OPEN, PROJECT}] * 2
        restrict_project(store, EVERY_PROJECT, [], actor="a test")
        assert shown() == [{PROJECT}] * 2
        # the tables would show what the views hide
        for table in ("run", "measurement", "regression", "project", "project_access"):
            with engine.connect() as connection, pytest.raises(ProgrammingError, match="denied"):
                connection.execute(text(f"SELECT * FROM {table}"))
        engine.dispose()
