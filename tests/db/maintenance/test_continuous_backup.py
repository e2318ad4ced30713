"""The recipe for continuous backups, with a real server: archive, base backup, a point in time."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from roofwatch.db.engine.embedded import Postgres, find_postgres
from roofwatch.db.engine.migrate import upgrade
from roofwatch.db.engine.session import open_server
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.service_state import read_service_state
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.queries.runs import list_runs
from tests.builders import NOON, PROJECT, make_record

ROOT = Path(__file__).parents[3]
DOCUMENTED_TIME = "2026-12-24 18:00:00+00"
_OPTIONS = "-c listen_addresses='' -c unix_socket_directories={sockets} -c fsync=off"


def documented_settings(archive: Path) -> list[str]:
    """The settings of the recipe: of archiving, and of a restore."""
    page = (ROOT / "docs" / "how-to" / "database.md").read_text()
    recipe = page.partition("## Continuous backup")[2].partition("## Export")[0]
    blocks: list[str] = re.findall(r"```ini\n(.*?)```", recipe, re.DOTALL)
    return [block.replace("/archive", str(archive)) for block in blocks]


class Recipe:
    """Folders of a server that the user of Postgres may write."""

    def __init__(self, folder: Path) -> None:
        self.postgres: Postgres = find_postgres(folder)
        self.sockets, self.data, self.archive, self.restored = (
            folder / name for name in ("s", "data", "archive", "restored")
        )
        for path in (self.sockets, self.data, self.archive):
            path.mkdir(mode=0o700)
            self.give(path)

    def give(self, path: Path) -> None:
        if self.postgres.owner is not None:
            os.chown(path, *self.postgres.owner)

    def run(self, program: str, *arguments: str, data: Path | None = None) -> None:
        done = self.postgres.run(program, *arguments, data=data)
        assert done.returncode == 0, done.stdout + done.stderr

    @contextmanager
    def serving(self, data: Path) -> Iterator[Engine]:
        options = f"--options={_OPTIONS.format(sockets=self.sockets)}"
        self.run("pg_ctl", "start", "--wait", "--log=server.log", options, data=data)
        url = f"postgresql://postgres@/postgres?host={self.sockets}"
        try:
            with open_server(url) as engine:
                yield engine
        finally:
            self.run("pg_ctl", "stop", "--mode=fast", "--wait", data=data)


@pytest.mark.slow
def test_the_documented_recipe_restores_to_a_point_in_time(tmp_path: Path) -> None:
    recipe = Recipe(tmp_path)
    first, second, late = map(make_record, range(3))
    archiving, restoring = documented_settings(recipe.archive)
    recipe.run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", data=recipe.data)
    with (recipe.data / "postgresql.conf").open("a") as file:
        file.write(archiving)
    with recipe.serving(recipe.data) as engine:
        upgrade(engine)
        ingest_record(engine, first)
        host, base = f"--host={recipe.sockets}", recipe.archive / "base"
        recipe.run(
            "pg_basebackup", host, "--username=postgres", f"--pgdata={base}", "--checkpoint=fast"
        )
        # after the base backup: only the archive has it
        ingest_record(engine, second)
        with engine.connect() as connection:
            point = connection.execute(text("SELECT clock_timestamp()::text")).scalar_one()
        ingest_record(engine, late)
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_switch_wal()"))
        with Session(engine) as session:
            assert read_service_state(session, NOON).archive_age_s is not None
        engine.dispose()
    shutil.rmtree(recipe.data)

    base.rename(recipe.restored)
    (recipe.restored / "recovery.signal").touch()
    recipe.give(recipe.restored / "recovery.signal")
    with (recipe.restored / "postgresql.conf").open("a") as file:
        file.write(restoring.replace(DOCUMENTED_TIME, point))
    with recipe.serving(recipe.restored) as engine:
        with Session(engine) as session:
            restored = {run.run_id for run in list_runs(session, PROJECT, None)}
        verification = verify_store(engine)

    assert restored == {str(first.run_id), str(second.run_id)}
    assert (verification.problems, verification.proven_count) == ((), 2)
