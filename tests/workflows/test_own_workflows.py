"""The project's own workflows for the site, the nights on a GPU and other versions of torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.db.queries.runs import list_runs
from tests.api.conftest import new_token, served
from tests.ci.forges.jobs import PAGES, ROOT, WORKFLOWS, Runner
from tests.ci.forges.stand_in import GitHubStandIn, open_github
from tests.git_repository import commit_all, make_repository
from tests.workflows.changes import SUITE

pytestmark = pytest.mark.slow
KEPT_KERNELS = {"__init__.py", "registry.py"}
KERNEL = SUITE.replace("scale = KernelSpec(", "scale_spec = KernelSpec(").replace(
    "@scale.", "@scale_spec."
)


def jobs_of(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text())["jobs"]
    return jobs


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with open_github() as stand_in:
        yield stand_in


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """This repository's files as they are now, which need not be committed."""
    folder = tmp_path / "work" / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0")[:-1]:
        # a deleted file is listed until the deletion is committed
        if os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def test_the_site_is_built_and_published(github: GitHubStandIn, checkout: Path) -> None:
    # the set-up of `make docs`, which takes minutes, is that of the tests
    environment = checkout / ".venv"
    environment.mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        (environment / part).symlink_to(Path(sys.prefix) / part)
    (environment / ".set-up").touch()
    runner = Runner(github, "workflow_dispatch", {}, checkout)

    for job in jobs_of("docs.yml").values():
        runner.job(job, {})

    site = checkout.parent / "artifacts" / PAGES
    assert (site / "llms.txt").exists()
    assert "roofwatch bisect" in (site / "_sources" / "reference" / "cli.md").read_text()


@pytest.mark.parametrize(
    ("workflow", "packages"),
    [
        ("oldest.yml", "torch==2.11.0 triton==3.6.0"),
        ("newest.yml", "--constraint build/newest/constraints.txt torch triton"),
    ],
)
def test_other_versions_are_installed_before_their_tests(
    workflow: str, packages: str, github: GitHubStandIn, checkout: Path, tmp_path: Path
) -> None:
    """The download takes minutes, so `make` only says what it would do."""
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(f'#!/bin/sh\nexec {shutil.which("make")} --dry-run "$@"\n')
    make.chmod(0o755)
    runner = Runner(
        github,
        "push",
        {},
        checkout,
        environment={"PATH": f"{make.parent}:{os.environ['PATH']}"},
    )

    (job,) = jobs_of(workflow).values()
    runner.job(job, {})

    (output,) = runner.outputs
    installed = output.index(packages)
    assert installed < output.index("tests/kernels tests/collector")


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """An environment with all dependencies and without roofwatch."""
    folder = tmp_path / "python"
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = [path for path in sys.path if path.endswith("-packages")]
    (site / "dependencies.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in paths)
    )
    return folder


def test_a_night_measures_the_bundled_suite_and_sends_the_records(
    github: GitHubStandIn, checkout: Path, bare_python: Path, store: Engine
) -> None:
    """Its install had no history: "site-packages/roofwatch: not in a git repository"."""
    for path in (checkout / "kernels").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in KEPT_KERNELS:
            path.unlink()
    (checkout / "kernels" / "scale.py").write_text(KERNEL)
    make_repository(checkout)
    head = commit_all(checkout)
    token = new_token(store, project="roofwatch", now=datetime.now(UTC)).text
    variables = {"PATH": f"{bare_python}/bin:{os.environ['PATH']}", "PIP_NO_DEPS": "1"}
    (job,) = jobs_of("nightly.yml").values()
    event = {"schedule": "17 2 * * *"}
    a_fork = Runner(github, "schedule", event, checkout, environment=variables)
    assert a_fork.job(job, {}) is None

    with served(store) as (host, port):
        settings = {
            "vars": {"ROOFWATCH_SERVER_URL": f"http://{host}:{port}"},
            "secrets": {"ROOFWATCH_TOKEN": token},
        }
        runner = Runner(
            github, "schedule", event, checkout, environment=variables, settings=settings
        )
        runner.job(job, {})

    with Session(store) as session:
        runs = list_runs(session, "roofwatch", None)
    assert {run.commit.sha for run in runs} == {head}
    kept = list((checkout.parent / "artifacts" / "roofwatch-records").glob("*.json.gz"))
    assert len(kept) == len(runs)
    assert token not in "".join(runner.outputs)
