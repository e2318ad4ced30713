import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from roofwatch.auditing import exit_status, install_triton, static_arguments
from roofwatch.ci.static.toolchain_audit import Build, judge_upgrades
from roofwatch.collector.errors import ToolchainError
from roofwatch.collector.record.machine import Outcome
from roofwatch.options import RunOptions
from tests.builders import make_static_facts
from tests.roofwatch.command import SUITES, roofwatch

OTHER_TRITON = "3.6.0" if version("triton") != "3.6.0" else "3.7.1"


@cache
def is_known_to_pip(triton: str) -> bool:
    asked = [sys.executable, "-m", "pip", "index", "versions", "triton", "--disable-pip-version-check"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return triton in done.stdout


@pytest.mark.slow
def test_two_versions_compile_a_suite() -> None:
    if not is_known_to_pip(OTHER_TRITON):
        pytest.skip(f"pip finds no index that has triton {OTHER_TRITON}")
    suite = SUITES / "bench_good.py"

    done = roofwatch(*("static", "audit", suite, "--triton", OTHER_TRITON, "--targets", "sm_90,gfx942", "--json"))

    assert done.status in {0, 1}, done.error
    builds = done.parsed["builds"]
    assert {build["triton"] for build in builds} == {OTHER_TRITON, version("triton")}
    for build in builds:
        compiled = [facts for facts in build["static_facts"] if facts["outcome"] == "ok"]
        assert [facts["target"] for facts in compiled] == ["sm_90", "gfx942"]
        assert {facts["toolchain"]["triton"] for facts in compiled} == {build["triton"]}
    (upgrade,) = done.parsed["upgrades"]
    assert upgrade["from"] == min(OTHER_TRITON, version("triton"))
    assert all(sum(counts.values()) == 1 for counts in upgrade["counts"].values())


def test_an_unknown_version_is_one_line_and_exit_status_2(tmp_path: Path) -> None:
    done = roofwatch("static", "audit", "--triton", "0.0.1", "--triton", "0.0.2", ROOFWATCH_CACHE_DIR=str(tmp_path))

    assert done.status == 2
    assert done.error.startswith("roofwatch: triton 0.0.1: pip cannot install it:")
    assert len(done.error.splitlines()) == 1


@pytest.mark.parametrize("name", ["", "latest", "-r requirements.txt", "3.7.1 numpy", "https://a.b/c.whl"])
def test_only_a_version_number_reaches_pip(name: str) -> None:
    with pytest.raises(ToolchainError, match=r"use for example 3\.7\.1"):
        install_triton(name)


def test_each_version_is_compiled_with_all_options() -> None:
    options = RunOptions(
        targets="sm_90", kernel=["soft*"], implementation=["triton"], tag=["quick"], compile_timeout=10.0
    )

    assert static_arguments(Path("bench.py"), options) == [
        *("bench.py", "--kernel", "soft*", "--implementation", "triton", "--tag", "quick"),
        *("--targets", "sm_90", "--compile-timeout", "10"),
    ]


def test_the_exit_status_of_an_audit() -> None:
    fine = Build("3.6.0", (make_static_facts(),))
    spills = Build("3.7.0", (make_static_facts(local_bytes=8, code="spills"),))
    nothing = Build("3.6.0", (make_static_facts(outcome=Outcome.UNSUPPORTED),))

    assert exit_status([fine, spills], judge_upgrades([fine, spills])) == 1
    assert exit_status([spills, fine], judge_upgrades([spills, fine])) == 0
    assert exit_status([nothing, fine], judge_upgrades([nothing, fine])) == 2
    untried = Build("3.6.0", (*fine.facts, make_static_facts(target="sm_80", outcome=Outcome.OUT_OF_MEMORY)))
    assert exit_status([untried, fine], judge_upgrades([untried, fine])) == 2
