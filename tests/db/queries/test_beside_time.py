"""What is measured beside a time: the host's time of a launch, and the memory of one."""

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.measurement import MemoryUse
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.series import list_series_keys, read_series
from roofwatch.db.queries.trend import TrendQuestion, read_trend
from tests.builders import PROJECT, make_blocks, make_commit_ref, make_measurement, make_record, make_series_key


def test_the_hosts_time_and_the_memory_of_a_launch_are_series_where_they_were_measured(store: Engine) -> None:
    """Memory is one exact number; the host's time is kept to seven digits. What failed has neither."""
    blocks = tuple(block.model_copy(update={"host_ns": 4_200.3}) for block in make_blocks([10_000.0] * 3))
    peak = 3 * 2**30 + 512
    memory = MemoryUse(peak_allocated_bytes=peak, peak_reserved_bytes=2**32, allocation_count=2)
    for record in (
        make_record(0),
        make_record(1, measurements=[make_measurement(blocks=blocks, memory=memory)]),
        make_record(2, measurements=[make_measurement(outcome=Outcome.CRASHED, memory=memory)]),
    ):
        ingest_record(store, record)
    keys = make_series_key("peak_allocated_bytes"), make_series_key("host_ns")

    with Session(store) as session:
        listed = {key.metric for key in list_series_keys(session, PROJECT)}
        memories, hosts = (read_series(session, PROJECT, keys=[key])[0].points for key in keys)
        trend = read_trend(session, TrendQuestion(PROJECT, keys)).series

    host, failed = hosts
    assert host.value == pytest.approx(4_200.3, rel=1e-7)
    assert (host.low, host.high, host.commit, failed.value) == (None, None, make_commit_ref(1), None)
    assert [point.value for point in memories] == [peak, None]
    assert {"host_ns", "peak_allocated_bytes"} <= listed
    assert [[point.value for point in one.points] for one in trend] == [[peak, None], [host.value, None]]


def test_a_series_without_memory_is_not_offered_any(store: Engine) -> None:
    ingest_record(store, make_record())

    with Session(store) as session:
        listed = {key.metric for key in list_series_keys(session, PROJECT)}

    assert listed == {"median_ns", "flop_per_s", "memory_bytes_per_s", "utilisation"}
