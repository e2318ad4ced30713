"""Kills at random points of an ingest, a few of those that `bench/chaos.py` makes; and that a loss would show there."""

from pathlib import Path

from bench.chaos import VICTIMS, run_chaos
from tests.builders import make_measurement, make_record


def test_a_kill_of_client_server_or_database_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    real = make_record(measurements=[make_measurement()])

    tally = run_chaos(real, tmp_path, kills=3, seed=7, outage=None, full_disks=0)

    assert tally.is_clean, tally
    assert tally.faults == dict.fromkeys(VICTIMS[:3], 1)
    assert tally.sent == 8
