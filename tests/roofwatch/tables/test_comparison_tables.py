"""Tables of a judged pair of records."""

import uuid

import pytest

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.record import PairMember, Side
from roofwatch.tables.comparison import judgement_tables
from tests.builders import make_blocks, make_measurement, make_record


@pytest.mark.parametrize("first_head_ns", [5_000.0, 20_000.0])
def test_the_regressed_case_is_the_first_row(first_head_ns: float) -> None:
    """Whatever the order of the cases in the record."""
    names = [f"rms_norm/n_rows={rows},n_cols=8/float32/fwd" for rows in (1, 2)]
    head_times = dict(zip(names, (first_head_ns, 25_000.0 - first_head_ns), strict=True))
    base_times = dict.fromkeys(names, 10_000.0)
    pair_id = uuid.uuid4()
    base, head = (
        make_record(
            number,
            measurements=[
                make_measurement(case_id, blocks=make_blocks([time_ns] * 12))
                for case_id, time_ns in times.items()
            ],
            pairing=PairMember(pair_id=pair_id, side=side),
        )
        for number, (side, times) in enumerate(((Side.BASE, base_times), (Side.HEAD, head_times)))
    )
    table = judgement_tables(judge_pull_request(base, head))[0]

    cells = {str(column.header): str(next(iter(column.cells))) for column in table.columns}
    assert cells["verdict"] == "regressed"
    assert cells["case"] == max(names, key=lambda name: head_times[name])
