"""Which runs are noted as unreachable, whatever comes in meanwhile."""

from typing import Any

import pytest
from sqlalchemy import Engine, event

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.branch_line import note_unreachable
from tests.builders import PROJECT, make_record


@pytest.mark.parametrize("position", range(4))
def test_a_run_of_a_new_commit_may_be_stored_between_any_two_questions(store: Engine, position: int) -> None:
    ingest_record(store, make_record(0))
    asked, later = list[str](), make_record(1)

    def ingest_then(_: Any, __: Any, statement: str, *___: Any) -> None:
        asked.append(statement)
        if len(asked) == position + 1:
            ingest_record(store, later)

    event.listen(store, "before_cursor_execute", ingest_then)
    note_unreachable(store, PROJECT)
    event.remove(store, "before_cursor_execute", ingest_then)

    assert len(asked) > position
    assert not ingest_record(store, later).was_new
