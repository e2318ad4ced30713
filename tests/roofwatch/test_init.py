"""`roofwatch init`: kernels of a repository, and the files proposed for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from roofwatch.collector.git import run_git
from roofwatch.proposing import find_kernels, propose
from tests.docs.command_line import check_line
from tests.docs.markdown import ROOT, code_blocks, code_spans
from tests.git_repository import make_repository
from tests.roofwatch.command import SUITES, roofwatch

LAUNCHERS = """
import torch
import triton
from undeclared_kernels import add_kernel, copy_kernel


def add(x: torch.Tensor, y: torch.Tensor, n: int, block: int = 128) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out


def _copy(x):
    out = torch.empty_like(x)
    copy_kernel[(1,)](x, out, x.numel(), DTYPE=x.dtype)
    return out


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale: float):
        return _copy(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def unrelated(x):
    return x[0](x)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "my-kernels")
    (folder / "src").mkdir()
    shutil.copy(SUITES / "undeclared_kernels.py", folder / "src")
    (folder / "src" / "launchers.py").write_text(LAUNCHERS)
    (folder / "test_launchers.py").write_text(LAUNCHERS)
    (folder / "broken.py").write_text("def (")
    (folder / ".gitignore").write_text("ignored/\n")
    (folder / "ignored").mkdir()
    (folder / "ignored" / "copied.py").write_text(LAUNCHERS)
    return folder


def test_launchers_and_autograd_functions_are_found_with_what_they_need(repository: Path) -> None:
    found = {
        (one.module, one.function): (one.parameters, one.is_differentiable)
        for one in find_kernels(repository)
    }

    assert found == {
        ("launchers", "add"): ({"x": "torch.Tensor", "y": "torch.Tensor", "n": "int"}, False),
        ("launchers", "Copy"): ({"x": "", "scale": "float"}, True),
    }


def test_the_proposed_benchmark_file_loads_and_says_what_is_missing(repository: Path) -> None:
    done = roofwatch("init", "--yes", "--json", cwd=repository)
    assert done.status == 0, done.error
    assert set(done.parsed["files"].values()) == {"written"}

    kernels = roofwatch("list", "bench_my_kernels.py", "--json", cwd=repository).parsed["kernels"]
    assert {one["name"]: one["directions"] for one in kernels} == {
        "add": ["fwd"],
        "Copy": ["fwd", "bwd"],
    }
    checked = roofwatch(
        "check", "bench_my_kernels.py", "--case", "add/*float32*", "--json", cwd=repository
    )
    assert "write the reference" in checked.output


def test_the_proposed_workflows_are_those_of_the_documentation(repository: Path) -> None:
    (repository / "requirements.txt").touch()
    _, files = propose(repository)
    workflows = [text for path, text in files.items() if path.suffix == ".yml"]
    shown = code_blocks(ROOT / "docs" / "how-to" / "github.md", "yaml")

    assert [text.replace("bench_my_kernels", "bench_layers") for text in workflows] == shown[:2]


def test_a_repository_on_gitlab_gets_the_documented_pipeline_and_its_own_is_kept(
    repository: Path,
) -> None:
    (repository / "requirements.txt").touch()
    run_git(repository, "remote", "add", "origin", "git@gitlab.example.com:owner/my-kernels.git")
    (shown,) = code_blocks(ROOT / "docs" / "how-to" / "gitlab.md", "yaml")
    _, files = propose(repository)
    proposed = {
        path.name: text.replace("bench_my_kernels", "bench_layers") for path, text in files.items()
    }
    assert proposed[".gitlab-ci.yml"] == shown
    assert not {path for path in files if ".github" in path.parts}

    (repository / ".gitlab-ci.yml").write_text("stages: [test]\n")
    done = roofwatch("init", "--yes", cwd=repository)
    assert "include: [{ local: .gitlab/roofwatch.yml }]" in done.output
    assert (repository / ".gitlab-ci.yml").read_text() == "stages: [test]\n"
    assert yaml.safe_load((repository / ".gitlab" / "roofwatch.yml").read_text()).keys() == {
        "measure",
        "report",
    }


def test_nothing_is_written_without_a_yes_and_no_file_is_overwritten(repository: Path) -> None:
    before = {*repository.iterdir()}
    assert set(roofwatch("init", "--json", cwd=repository).parsed["files"].values()) == {"declined"}
    assert {*repository.iterdir()} == before

    (repository / "AGENTS.md").write_text("mine")
    assert [
        *roofwatch("init", "--agents", "--yes", "--json", cwd=repository).parsed["files"].values()
    ] == ["exists"]
    assert (repository / "AGENTS.md").read_text() == "mine"


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    done = roofwatch("init", "--yes", cwd=tmp_path)

    assert done.status == 2
    assert "git" in done.error


@pytest.mark.slow
def test_a_test_can_be_run_to_record_its_launches(repository: Path) -> None:
    (repository / "test_add.py").write_text(
        "import torch\nfrom launchers import add\n\n\ndef test_add():\n    add(torch.ones(96), "
        "torch.ones(96), 96)\n"
    )
    done = roofwatch(
        "init",
        "--yes",
        "--capture",
        "test_add.py",
        cwd=repository,
        PYTHONPATH=str(repository / "src"),
    )

    assert done.status == 0, done.error
    assert "undeclared_kernels.add_kernel" in (repository / "bench_captured.py").read_text()


def test_the_instructions_for_agents_name_valid_commands() -> None:
    commands = [
        span
        for span in code_spans(ROOT / "roofwatch" / "templates" / "AGENTS.md")
        if span.startswith("roofwatch ")
    ]

    assert commands
    for line in commands:
        check_line(line)


@pytest.mark.parametrize(
    ("project", "requirements", "setup"),
    [
        ('dependencies = ["torch"]', "torch\n", "pip install ."),
        ("dependencies = []", "torch\n", "pip install -r requirements.txt ."),
        ("dependencies = []", None, "pip install ."),
        (None, "torch\n", "pip install -r requirements.txt"),
    ],
)
def test_the_proposed_setup_installs_what_the_kernels_need(
    tmp_path: Path, project: str | None, requirements: str | None, setup: str
) -> None:
    folder = make_repository(tmp_path / "repository")
    for name, text in (("pyproject.toml", project), ("requirements.txt", requirements)):
        if text is not None:
            (folder / name).write_text(text)

    _, files = propose(folder)

    workflow = files[folder / ".github" / "workflows" / "roofwatch.yml"]
    assert f"setup: {setup} }}" in workflow
