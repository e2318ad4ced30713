"""Records in a folder say the same as the same records in a database."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.history.analyse import JUDGED_METRICS
from roofwatch.db.queries.pairs import list_pairs
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.model.machine import Outcome
from roofwatch.model.proofs import OperatorCost
from roofwatch.watch.series import pairs_of, series_of
from tests.builders import (
    PROJECT,
    make_accuracy,
    make_commit_ref,
    make_complete_record,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
)
from tests.databases import ingest_all


def test_record_files_give_the_history_that_the_database_gives(store: Engine) -> None:
    complete = make_complete_record(0)
    cost = OperatorCost(
        case_id=complete.cases[0].case_id,
        implementation="triton",
        target="sm_90",
        read_bytes=1_000,
        kernel_bytes=500,
        peak_bytes=700,
        wait_count=1,
    )
    records = [
        complete.model_copy(update={"operator_costs": (cost,)}),
        make_record(1, accuracies=[make_accuracy(outcome=Outcome.INCORRECT, tensors=())]),
        make_record(2, measurements=[make_measurement(outcome=Outcome.CRASHED, message="a fault")]),
        *make_pair_of_records(2, 3, head_median_ns=12_000.0),
    ]
    ingest_all(store, *records)
    commits = {make_commit_ref(number).sha: make_commit_ref(number) for number in range(4)}

    with Session(store) as session:
        keys = [
            key
            for key in list_series_keys(session, PROJECT, include_pairs=True)
            if key.metric in JUDGED_METRICS
        ]
        stored = read_series(session, PROJECT, keys, include_pairs=True, include_conditions=True)
        stored_pairs = list_pairs(session, PROJECT)

    assert [series.key for series in series_of(records, commits)] == [
        series.key for series in stored
    ]
    for own_series, stored_series in zip(series_of(records, commits), stored, strict=True):
        assert own_series.points == stored_series.points
    assert pairs_of(records, commits) == stored_pairs


@pytest.mark.parametrize(
    ("head_fields", "is_same_code"),
    [
        ({}, True),
        ({"implementation_digests": {"rms_norm/torch": "b"}}, False),
        ({"implementation_digests": {}}, False),
        ({"requirements": {"numpy": "numpy==2"}}, False),
        ({"environment": make_environment(driver_version="600.1")}, False),
    ],
)
def test_a_pair_of_the_same_code_on_one_machine_is_marked(
    store: Engine, head_fields: dict[str, object], is_same_code: bool
) -> None:
    base, head = make_pair_of_records(
        2,
        3,
        implementation_digests={"rms_norm/torch": "a"},
        requirements={"numpy": "numpy==1"},
    )
    records = [base, head.model_copy(update=head_fields)]
    ingest_all(store, *records)
    commits = {make_commit_ref(number).sha: make_commit_ref(number) for number in range(4)}

    with Session(store) as session:
        stored_pairs = list_pairs(session, PROJECT)

    assert [pair.is_same_code for pair in stored_pairs] == [is_same_code]
    assert pairs_of(records, commits) == stored_pairs
