"""A suite under another release of Triton and the installed one."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.roofwatch.command import SUITES, roofwatch, started_roofwatch

OTHER_TRITON = "3.6.0" if version("triton") != "3.6.0" else "3.7.1"


@pytest.mark.slow
def test_two_releases_compile_a_suite() -> None:
    asked = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        "triton",
        "--disable-pip-version-check",
    ]
    if (
        OTHER_TRITON
        not in subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    ):
        pytest.skip(f"pip finds no index that has triton {OTHER_TRITON}")

    arguments = (
        "static",
        SUITES / "bench_good.py",
        "--targets",
        "sm_90,gfx942",
        "--base-triton",
        OTHER_TRITON,
    )
    done = started_roofwatch(
        *arguments, "--json"
    )  # forked fork servers have loaded the installed release

    assert done.status in {0, 1}, done.error
    found = done.parsed
    assert found["base"] == f"triton {OTHER_TRITON}"
    assert len(found["judged"]) + sum(found["unchanged_by_target"].values()) == 2
    for item in found["judged"]:
        sides = [item[side]["toolchain"]["triton"] for side in ("base", "head")]
        assert (sides, item["cause"]) == ([OTHER_TRITON, version("triton")], "toolchain")


def test_an_unknown_release_is_one_line_with_exit_status_2(tmp_path: Path) -> None:
    done = roofwatch(
        "static",
        SUITES / "bench_good.py",
        "--base-triton",
        "0.0.1",
        ROOFWATCH_CACHE_DIR=str(tmp_path),
    )

    assert done.status == 2
    assert done.error.startswith("roofwatch: triton 0.0.1: pip cannot install it:")
    assert len(done.error.splitlines()) == 1


@pytest.mark.parametrize(
    "name", ["latest", "-r requirements.txt", "3.7.1 numpy", "https://a.b/c.whl"]
)
def test_only_a_version_number_reaches_pip(name: str) -> None:
    done = roofwatch("static", SUITES / "bench_good.py", "--base-triton", name)

    assert done.status == 2
    assert "neither a version" in done.error or "no such wheel" in done.error
