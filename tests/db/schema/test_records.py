"""Constraints of the tables."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import PROJECT, make_accuracy, make_measurement, make_record, make_regression, make_static_facts

INVALID = {
    "a time of a failure": ("UPDATE measurement SET outcome = 'crashed'", "ck_measurement_time_only_if_ok"),
    "a negative time": ("UPDATE measurement SET q1_ns = -1", "ck_measurement_times_in_order"),
    "an unknown outcome": ("UPDATE accuracy SET outcome = 'fine'", "ck_accuracy_outcome"),
    "an unknown verdict": ("UPDATE regression SET verdict = 'slower'", "ck_regression_verdict"),
    "a duplicate project": ("INSERT INTO project (name) SELECT name FROM project", "uq_project_name"),
    "a run without a commit": ("UPDATE run SET commit_id = -1", "fk_run_commit_id"),
}


@pytest.mark.parametrize("what", INVALID)
def test_constraints_refuse_invalid_rows(store: Engine, what: str) -> None:
    statement, constraint = INVALID[what]
    for number in range(2):
        record = make_record(
            number,
            measurements=[make_measurement()],
            accuracies=[make_accuracy()],
            static_facts=[make_static_facts()],
        )
        ingest_record(store, record)
    replace_regressions(store, PROJECT, [make_regression(1)])

    with store.begin() as connection, pytest.raises(IntegrityError, match=f'"{constraint}"'):
        connection.execute(text(statement))
