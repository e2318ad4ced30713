"""The exit status of a run, and why something was not timed."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from roofwatch.cli.main import app
from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.record import RunRecord
from roofwatch.measurement.run import write_records
from roofwatch.records import nothing_done
from tests.builders import make_accuracy, make_case, make_measurement, make_record
from tests.roofwatch.command import SUITES

NO_GPU, TOO_SMALL = "torch sees no GPU here", "a launch touches 8 bytes"
CASES = [f"rms_norm/n_rows=64,n_cols={width}/float32/fwd" for width in (1, 2, 3)]


def refused(case_id: str = CASES[0], message: str = TOO_SMALL, implementation: str = "torch") -> RunRecord:
    measurement = make_measurement(
        case_id=case_id, implementation=implementation, outcome=Outcome.UNSUPPORTED, message=message
    )
    return record_of(measurements=(measurement,))


def record_of(**fields: Any) -> RunRecord:
    nothing: dict[str, Any] = {"accuracies": (), "static_facts": (), "measurements": ()}
    return make_record(cases=tuple(map(make_case, CASES)), **nothing | fields)


def checked(executor: str, outcome: Outcome = Outcome.OK) -> RunRecord:
    accuracy = make_accuracy(case_id=CASES[0], implementation="torch", executor=executor, outcome=outcome)
    return refused().model_copy(update={"accuracies": (accuracy,)})


def test_a_run_without_times_has_a_reason() -> None:
    assert nothing_done([checked("device")]) == f"nothing could be timed: {TOO_SMALL}"
    other = refused(CASES[1], NO_GPU).measurements
    mixed = checked("device").model_copy(update={"measurements": (*other, *refused().measurements)})
    assert nothing_done([mixed]) == f"nothing could be timed: {TOO_SMALL}", "the other never ran"
    assert nothing_done([refused(message=NO_GPU)]) == f"nothing could be checked, compiled or timed: {NO_GPU}"
    assert nothing_done([refused(), refused()]) is not None


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["table", "json"])
def test_reasons_are_listed_with_counts_and_exit_status_2(
    as_json: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [refused(CASES[0]), refused(CASES[1]), refused(CASES[2], NO_GPU)]
    record = record_of(measurements=tuple(one for part in parts for one in part.measurements))
    monkeypatch.setattr("roofwatch.measurement.run.measure", lambda *_, **__: [(Path("record.json"), record)])

    done = CliRunner().invoke(app, ["run", str(SUITES / "bench_good.py"), *as_json])

    assert done.exit_code == 2
    assert f"nothing could be checked, compiled or timed: {TOO_SMALL}" in done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    if not as_json:
        assert lines.index(f"2 unsupported: {TOO_SMALL}") + 1 == lines.index(f"1 unsupported: {NO_GPU}")


def test_a_record_that_cannot_be_written_is_saved_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    first, second = make_record(), make_record(1)

    with pytest.raises(RecordError) as caught:
        write_records([(tmp_path / "file" / "first.json", first), (tmp_path / "second.json", second)])

    (rescued,) = tmp_path.glob("roofwatch-rescued-*/first.json")
    assert f"; the record is in {rescued}" in str(caught.value)
    assert (RunRecord.read(rescued), RunRecord.read(tmp_path / "second.json")) == (first, second)
