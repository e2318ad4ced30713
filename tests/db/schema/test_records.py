"""The tables refuse what cannot be, whoever writes it."""

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import PROJECT, make_accuracy, make_measurement, make_record, make_regression, make_static_facts

IMPOSSIBLE = {
    "a time of a failure": ("UPDATE measurement SET outcome = 4", "ck_measurement_time_only_if_ok"),
    "ok without a time": ("UPDATE measurement SET median_ns = NULL", "ck_measurement_time_only_if_ok"),
    "a median without quartiles": ("UPDATE measurement SET q1_ns = NULL", "ck_measurement_time_whole"),
    "no sample at all": ("UPDATE measurement SET sample_count = 0", "ck_measurement_samples_not_empty"),
    "a time below zero": ("UPDATE measurement SET q1_ns = -1", "ck_measurement_times_in_order"),
    "an outcome without a name": ("UPDATE measurement SET outcome = 8", "ck_measurement_outcome"),
    "an unknown outcome": ("UPDATE accuracy SET outcome = 'fine'", "ck_accuracy_outcome"),
    "an unknown timer": ("UPDATE series SET timer = 'sundial'", "ck_series_timer"),
    "ok without code": ("UPDATE static_fact SET code_hash = NULL", "ck_static_fact_code_only_if_ok"),
    "an error below zero": ("UPDATE tensor_error SET rmse_ratio = -1", "ck_tensor_error_rmse_ratio_not_negative"),
    "a roof at the floor": ("UPDATE ceiling SET per_s = 0", "ck_ceiling_per_s_positive"),
    "a side without a pair": ("UPDATE run SET pair_side = 'base'", "ck_run_pair_has_side"),
    "an unknown verdict": ("UPDATE regression SET verdict = 'slower'", "ck_regression_verdict"),
    "an unknown direction": ("UPDATE \"case\" SET direction = 'up'", "ck_case_direction"),
    "a project twice": ("INSERT INTO project (name) SELECT name FROM project", "uq_project_name"),
    "a series twice": (
        "INSERT INTO series (case_version_id, implementation, timer, cache, runner_class, has_utilisation, has_energy, "
        "has_host_time, has_memory) "
        "SELECT case_version_id, implementation, timer, cache, runner_class, false, false, false, false FROM series",
        "uq_series_identity",
    ),
    "a run without a commit": ("UPDATE run SET commit_id = -1", "fk_run_commit_id"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_the_tables_refuse(store: Engine, what: str) -> None:
    statement, constraint = IMPOSSIBLE[what]
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
