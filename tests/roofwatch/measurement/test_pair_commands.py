"""`roofwatch calibrate`, and its noise floor in the next comparison."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from roofwatch.ci.ab.compare import compare
from roofwatch.ci.ab.noise_floor import noise_floor_of
from roofwatch.collector.record.record import RunRecord
from roofwatch.comparison_tables import noise_floor_table
from roofwatch.measurement.pair import noise_floor_summary
from tests.builders import CASE_ID, make_record
from tests.roofwatch.command import SUITES, roofwatch

SUITE = SUITES / "bench_good.py"
BRIEFLY = ("-k", "scale", "--device", "cpu", "--blocks", "3", "--budget", "0")


@pytest.mark.slow
def test_a_calibrated_noise_floor_applies_to_the_next_comparison(tmp_path: Path) -> None:
    done = roofwatch("calibrate", SUITE, *BRIEFLY, "-o", tmp_path, "--json")

    assert done.status == 0, done.error
    floor = tmp_path / "noise_floor.json"
    assert floor.read_text() == done.output
    assert done.parsed["preset"] == "survey"
    (case,) = done.parsed["cases"]
    assert (case["case_id"], case["implementation"], case["block_count"]) == ("scale/n=1000/float32/fwd", "torch", 3)
    base, head = (RunRecord.read(file) for file in sorted(tmp_path.glob("*.json.gz")))
    assert base.commit.sha == head.commit.sha
    assert base.pairing is not None
    assert head.pairing is not None
    assert base.pairing.pair_id == head.pairing.pair_id
    assert (base.preset, head.preset) == ("survey", "survey")

    files = sorted(tmp_path.glob("*.json.gz"))
    compared = roofwatch("compare", *files, "--noise-floor", floor, "--json")

    threshold = compared.parsed["judgement"]["cases"][0]["comparison"]["threshold"]
    assert threshold == max(0.03, 3 * case["noise_floor"])

    otherwise = roofwatch("ab", SUITE, "--base", "HEAD", "--preset", "gate", "--noise-floor", floor, "-o", tmp_path)

    assert otherwise.status == 2, "before anything is measured"
    assert f"{floor}: the noise floor was sampled with --preset survey, the record with" in otherwise.error


def test_an_invalid_noise_floor_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")

    done = roofwatch("ab", SUITE, "--base", "HEAD", "--noise-floor", wrong, "-o", tmp_path)

    assert done.status == 2
    assert f"{wrong}: not a noise floor from roofwatch calibrate" in done.error


def test_a_noise_floor_is_summarised() -> None:
    blocks = [[1_000.0], [1_010.0], [990.0], [1_005.0], [1_002.0]]
    noise = noise_floor_of(
        make_record(), {(CASE_ID, "torch"): compare(blocks, [[1.3 * time] for (time,) in blocks[::-1]])}, threshold=0.03
    )
    output = io.StringIO()

    Console(file=output, width=200).print(noise_floor_table(noise))

    assert "detectable with 8" in output.getvalue()
    assert "false alarm" in output.getvalue()
    assert list(noise_floor_summary(noise))[1] == (
        "false alarms: 1 of 1 cases; 1 intervals exclude zero change, at most 0.1 expected"
    )
