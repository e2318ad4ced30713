import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from roofwatch.collector.errors import ToolchainError
from roofwatch.options import RunOptions
from roofwatch.triton_release import compile_under, static_arguments
from tests.roofwatch.command import SUITES, roofwatch

OTHER_TRITON = "3.6.0" if version("triton") != "3.6.0" else "3.7.1"


@pytest.mark.slow
def test_two_releases_compile_a_suite() -> None:
    asked = [sys.executable, "-m", "pip", "index", "versions", "triton", "--disable-pip-version-check"]
    if OTHER_TRITON not in subprocess.run(asked, capture_output=True, text=True, check=False).stdout:
        pytest.skip(f"pip finds no index that has triton {OTHER_TRITON}")

    done = roofwatch(*("static", SUITES / "bench_good.py", "--targets", "sm_90,gfx942"), "--base-triton", OTHER_TRITON)

    assert done.status in {0, 1}, done.error
    assert f"compared with triton {OTHER_TRITON}:" in done.output
    (facts,) = compile_under(OTHER_TRITON, SUITES / "bench_good.py", RunOptions(targets="sm_90"))
    assert (facts.target, facts.toolchain["triton"]) == ("sm_90", OTHER_TRITON)


def test_an_unknown_release_is_one_line_and_exit_status_2(tmp_path: Path) -> None:
    done = roofwatch("static", SUITES / "bench_good.py", "--base-triton", "0.0.1", ROOFWATCH_CACHE_DIR=str(tmp_path))

    assert done.status == 2
    assert done.error.startswith("roofwatch: triton 0.0.1: pip cannot install it:")
    assert len(done.error.splitlines()) == 1


@pytest.mark.parametrize("name", ["", "latest", "-r requirements.txt", "3.7.1 numpy", "https://a.b/c.whl"])
def test_only_a_version_number_reaches_pip(name: str) -> None:
    with pytest.raises(ToolchainError, match=r"use for example 3\.7\.1"):
        compile_under(name, None, RunOptions())


def test_the_other_release_compiles_with_the_same_options() -> None:
    options = RunOptions(targets="sm_90", kernel=["soft*"], implementation=["triton"], tag=["quick"], timeout=10.0)

    assert static_arguments(Path("bench.py"), options) == [
        *("bench.py", "--kernel", "soft*", "--implementation", "triton", "--tag", "quick"),
        *("--targets", "sm_90", "--timeout", "10"),
    ]
