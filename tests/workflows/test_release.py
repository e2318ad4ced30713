"""The project's own release workflow: its build and its try-out, step by step in a clone.

The last job needs PyPI's trust in GitHub and is not run.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

from roofwatch import __version__
from tests.ci.forges.jobs import ROOT, WORKFLOWS, Runner
from tests.ci.forges.stand_in import open_github

pytestmark = pytest.mark.slow
RELEASE = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]


@pytest.fixture(scope="module")
def pipx(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a hosted runner, which has pipx."""
    folder = tmp_path_factory.mktemp("pipx")
    venv.create(folder / "tools", with_pip=True)
    pip = [str(folder / "tools" / "bin" / "pip"), "install", "--quiet", "pipx"]
    if subprocess.run(pip, check=False, capture_output=True).returncode:
        pytest.skip("no package index with pipx")
    return {
        "PATH": f"{folder / 'tools' / 'bin'}:{os.environ['PATH']}",
        "PIPX_HOME": str(folder / "home"),
        "PIPX_BIN_DIR": str(folder / "bin"),
    }


def run_release(tag: str, folder: Path, environment: dict[str, str]) -> Runner:
    """Build a release in a clone, and try it in an empty folder."""
    checkout = folder / "build" / "checkout"
    checkout.parent.mkdir()
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), checkout], check=True)
    empty = folder / "try" / "checkout"
    empty.mkdir(parents=True)
    event = {"action": "published", "release": {"tag_name": tag}}
    with open_github() as github:
        runners = [
            Runner(
                github,
                "release",
                event,
                work_folder,
                artifacts=folder / "artifacts",
                environment=environment,
            )
            for work_folder in (checkout, empty)
        ]
        for runner, name in zip(runners, ("build", "try"), strict=True):
            runner.job(RELEASE[name], {})
    return runners[-1]


def test_a_release_is_built_and_runs_from_an_empty_environment(
    tmp_path: Path, pipx: dict[str, str]
) -> None:
    tried = run_release(f"v{__version__}", tmp_path, pipx)

    names = sorted(file.name for file in (tmp_path / "artifacts" / "dist").iterdir())
    assert names == [f"roofwatch-{__version__}-py3-none-any.whl", f"roofwatch-{__version__}.tar.gz"]
    # once for each version of Python
    assert len(tried.outputs) == 3
    assert all("roofwatch" in output and "Usage" in output for output in tried.outputs)


def test_a_tag_that_is_not_the_version_is_not_released(
    tmp_path: Path, pipx: dict[str, str]
) -> None:
    with pytest.raises(AssertionError):
        run_release("v0.0.0", tmp_path, pipx)

    assert not (tmp_path / "artifacts").exists()
