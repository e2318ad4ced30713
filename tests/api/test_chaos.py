"""Kill processes during an upload, as `bench/chaos.py` does more often; losses must be counted."""

from pathlib import Path

from bench.chaos import VICTIMS, run_chaos
from tests.builders import make_measurement, make_record


def test_killing_client_server_or_database_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    real = make_record(measurements=[make_measurement()])

    tally = run_chaos(real, tmp_path, kills=3, seed=7)

    assert tally.is_clean, tally
    assert tally.faults == dict.fromkeys(VICTIMS[:3], 1)
    assert tally.sent == 8
