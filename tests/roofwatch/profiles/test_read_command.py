"""What `roofwatch read` prints of real files of profilers, for people and for machines."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from roofwatch.cli.main import app
from roofwatch.collector.profiling.profile_file import read_profile
from roofwatch.model.errors import ProfileError
from tests.builders import make_record

DATA = Path(__file__).parents[2] / "data" / "profiles"


def read(*words: object) -> str:
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["read", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout


def kernels(*words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(read(*words, "--json"))["kernels"][
        "top_by_total_time"
    ]
    return found


@pytest.mark.parametrize("name", ["record.json", "record.json.gz"])
def test_a_record_is_refused_with_the_commands_that_read_it(tmp_path: Path, name: str) -> None:
    make_record().write(tmp_path / name)

    with pytest.raises(
        ProfileError, match=f"{name}: is a record of roofwatch.*use roofwatch ingest"
    ):
        read_profile(tmp_path / name)


def test_names_in_a_trace_are_printed_as_plain_text(tmp_path: Path) -> None:
    hostile = "\x1b[31m[red]gone[/nope]\u202e"
    launch = {
        "device": hostile,
        "stream": hostile,
        "correlation": 1,
        "grid": ["[/b]", 1, 1],
        "block": [1, 1, 1],
    }
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": hostile,
        "ts": 1,
        "dur": 5,
        "pid": 0,
        "tid": 7,
        "args": launch,
    }
    (tmp_path / "trace.json").write_bytes(
        orjson.dumps({"schemaVersion": 1, "traceEvents": [kernel]})
    )

    shown = read(tmp_path / "trace.json")

    assert shown.count("[red]gone[/nope]") == 2
    assert all(character.isprintable() for line in shown.split("\n") for character in line)


@pytest.mark.parametrize("name", ["alexnet_a100.json.gz", "power_iteration.sqlite"])
def test_top_limits_the_number_of_names(name: str) -> None:
    whole = kernels(DATA / name, "--top", "0")
    names = orjson.loads(read(DATA / name, "--json"))["kernels"]["distinct_names"]

    assert len(whole) == names
    assert kernels(DATA / name) == whole[:10]
    assert kernels(DATA / name, "--top", "2") == whole[:2]


def test_kernels_of_nsight_compute_are_shown_side_by_side() -> None:
    shown = read(DATA / "sgemm_raw_page.csv", "--top", "3")

    assert "11 kernels, the first 3" in shown
    assert ["achieved", "occupancy", "65.4%", "66.5%", "66.6%"] in [
        line.replace("│", " ").split() for line in shown.splitlines()
    ]
