"""`roofwatch init`: kernels of a repository, and the files proposed for them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from roofwatch.collector.git import run_git
from roofwatch.proposals.argument_guesses import guess_input, guess_inputs, matrix_count
from roofwatch.proposals.found_kernels import find_function, find_kernels
from roofwatch.proposals.install_source import InstallSource, source_of
from roofwatch.proposals.proposing import propose, to_lines
from tests.docs.command_line import check_line
from tests.docs.markdown import ROOT, code_blocks, code_spans
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import SUITES, roofwatch

SOURCE = f"someone/roofwatch@{'a' * 40}"
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


def test_everything_that_launches_a_kernel_is_found_with_what_it_needs(repository: Path) -> None:
    found = {
        (one.module, one.function): (one.parameters, one.is_differentiable)
        for one in find_kernels(repository)
    }

    assert found == {
        ("launchers", "add"): ({"x": "torch.Tensor", "y": "torch.Tensor", "n": "int"}, False),
        ("launchers", "Copy"): ({"x": "", "scale": "float"}, True),
    }


def test_the_proposed_benchmark_file_loads_with_marks_where_something_is_missing(
    repository: Path,
) -> None:
    done = roofwatch("init", "--from", SOURCE, "--yes", "--json", cwd=repository)
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
    # `add` reads two matrices and writes one
    benchmark = (repository / "bench_my_kernels.py").read_text()
    assert 'memory_bytes=lambda case: 3 * case["n_rows"]' in benchmark


UNCALLABLE = """
from launchers import add_kernel


def four_dimensions(x):
    batch, heads, length, width = x.shape
    add_kernel[(1,)](x, x, x, length, BLOCK=128)
    return x
"""


@pytest.mark.slow
def test_only_kernels_that_ran_with_the_guessed_inputs_are_proposed(repository: Path) -> None:
    (repository / "src" / "uncallable.py").write_text(UNCALLABLE)
    unloadable = UNCALLABLE.replace("four_dimensions", "unloadable")
    (repository / "src" / "elsewhere.py").write_text(f"import missing_package\n{unloadable}")
    again = unloadable.replace("unloadable", "unloadable_too")
    (repository / "src" / "once_more.py").write_text(f"\nimport missing_package\n{again}")
    (repository / "src" / "_ascend").mkdir()
    (repository / "src" / "_ascend" / "vendor.py").write_text(LAUNCHERS)

    done = roofwatch("init", "--from", SOURCE, "--yes", cwd=repository)

    text = (repository / "bench_my_kernels.py").read_text()
    assert set(re.findall(r"name=\"(\w+)\"", text)) == {"add", "Copy"}
    not_proposed = [line for line in done.output.splitlines() if line.startswith("not proposed: ")]
    reason_of = {line.split(": ")[1]: line for line in not_proposed}
    unloadable_names = "elsewhere.unloadable, once_more.unloadable_too"
    assert reason_of.keys() == {unloadable_names, "uncallable.four_dimensions"}
    assert "missing_package" in reason_of[unloadable_names]
    assert "proposed: 2 of 5 kernels found" in done.output
    assert "not enough values to unpack" in reason_of["uncallable.four_dimensions"]


@pytest.mark.parametrize(
    ("name", "annotation", "source"),
    [
        ("X", "torch.Tensor", 'make.normal(case["n_rows"], case["n_cols"])'),
        ("W", "torch.Tensor", 'make.normal(case["n_cols"])'),
        ("ln_bias", "", 'make.normal(case["n_cols"])'),
        ("target", "", 'make.integers(case["n_rows"], high=case["n_cols"])'),
        ("attn_mask", "", 'make.mask(case["n_rows"], case["n_cols"])'),
        ("teacher_logits", "", 'make.logits(case["n_rows"], case["n_cols"])'),
        (
            "student_prob",
            "torch.Tensor",
            'make.uniform(case["n_rows"], case["n_cols"], low=0.01, high=1.0)',
        ),
        ("beta", "", 'make.normal(case["n_cols"])'),
        ("beta", "float", "1.0"),
        ("ignore_index", "int", "-100"),
        ("eps", "float", "1e-6"),
        ("eps", "", "1e-6"),
        ("scale", "", "1.0"),
        ("scale", "torch.Tensor", 'make.normal(case["n_cols"])'),
        ("weight", "torch.Tensor", 'make.normal(case["n_cols"])'),
        ("n", "int", 'case["n_cols"]'),
        ("is_causal", "", "False"),
    ],
)
def test_an_input_is_guessed_from_what_its_parameter_says(
    name: str, annotation: str, source: str
) -> None:
    assert guess_input(name, annotation) == source


DEQUANTISE = """
import torch
import triton
import triton.language as tl


@triton.jit
def _dequantise_kernel(x_ptr, scale, y_ptr, alpha, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, x * tl.load(scale) * alpha, mask=mask)


def dequantise(x, scale, alpha):
    y = torch.empty_like(x)
    _dequantise_kernel[(triton.cdiv(x.numel(), 128),)](x, scale, y, alpha, x.numel(), BLOCK=128)
    return y


def rescale(x, x_scale):
    return x * x_scale.view(1, -1)
"""


def test_a_scale_that_a_kernel_loads_is_a_tensor(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(DEQUANTISE)

    parameters = find_function(tmp_path, "ops.py::dequantise").parameters
    inputs = guess_inputs(parameters)

    assert inputs["scale"] == 'make.normal(case["n_cols"])'
    assert inputs["alpha"] == "1.0"


def test_a_scale_with_a_shape_is_a_tensor(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(DEQUANTISE)

    assert find_function(tmp_path, "ops.py::rescale").parameters["x_scale"] == "Tensor"


def test_two_operands_have_one_shape() -> None:
    inputs = guess_inputs({"a": "", "b": "", "bias": ""})

    assert inputs["a"] == inputs["b"] == 'make.normal(case["n_rows"], case["n_cols"])'
    assert matrix_count(inputs.values()) == 2


def test_the_proposed_workflows_are_those_of_the_documentation(repository: Path) -> None:
    (repository / "requirements.txt").write_text("torch\n")
    _, files = propose(repository, InstallSource("roofwatch/roofwatch", "<commit>"))
    workflows = [text for path, text in files.items() if path.suffix == ".yml"]
    shown = code_blocks(ROOT / "docs" / "how-to" / "github.md", "yaml")

    assert [text.replace("bench_my_kernels", "bench_layers") for text in workflows] == shown[:2]


@pytest.mark.parametrize(
    ("direct_url", "expected"),
    [
        (
            {
                "url": "https://github.com/someone/roofwatch.git",
                "vcs_info": {"vcs": "git", "commit_id": "b" * 40, "requested_revision": "main"},
            },
            InstallSource("someone/roofwatch", "b" * 40),
        ),
        (
            {
                "url": "ssh://git@git.example.com/someone/roofwatch",
                "vcs_info": {"vcs": "git", "commit_id": "b" * 40},
            },
            InstallSource("someone/roofwatch", "b" * 40, "git.example.com"),
        ),
        ({"url": "file:///nowhere", "dir_info": {}}, None),
    ],
)
def test_the_jobs_use_the_commit_that_pip_installed(
    direct_url: dict[str, object], expected: InstallSource | None
) -> None:
    assert source_of(direct_url) == expected


def test_a_checkout_that_was_installed_is_named_by_its_remote_at_its_commit(tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "checkout")
    (folder / "README.md").touch()
    head = commit_all(folder)
    assert source_of({"url": folder.as_uri(), "dir_info": {"editable": True}}) is None
    run_git(folder, "remote", "add", "origin", "git@github.com:someone/roofwatch.git")

    found = source_of({"url": folder.as_uri(), "dir_info": {"editable": True}})

    assert found == InstallSource("someone/roofwatch", head)


def test_the_proposed_history_is_that_of_the_documentation(repository: Path) -> None:
    (repository / "requirements.txt").write_text("torch\n")
    source = InstallSource("roofwatch/roofwatch", "<commit>")
    _, files = propose(repository, source, with_history=True)
    (shown,) = code_blocks(ROOT / "docs" / "how-to" / "publish.md", "yaml")

    (text,) = [text for path, text in files.items() if path.name == "history.yml"]

    assert text.replace("bench_my_kernels", "bench_layers") == shown


@pytest.mark.parametrize("is_plain", [False, True], ids=["called", "plain"])
def test_checkers_of_workflows_find_nothing_in_the_proposed_ones(
    repository: Path, *, is_plain: bool
) -> None:
    """It found two dangerous triggers and two actions that were not pinned."""
    source = InstallSource("someone/roofwatch", "a" * 40)
    _, files = propose(repository, source, is_plain=is_plain, with_history=is_plain)
    workflows = {path: text for path, text in files.items() if path.suffix == ".yml"}
    for path, text in workflows.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = [str(path) for path in workflows]
    tool = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    zizmor = str(Path(sys.executable).parent / "zizmor")

    for command in ([zizmor, "--offline", "--no-progress", *names], [*tool, *names]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    used = re.findall(r"uses: (\S+)@([0-9a-f]{40})", "".join(workflows.values()))
    assert all(name.startswith("actions/") for name, _ in used) == is_plain
    assert len(names) == 2 + is_plain


def test_a_source_that_may_move_is_refused(repository: Path) -> None:
    done = roofwatch("init", "--from", "someone/roofwatch@main", "--yes", cwd=repository)

    assert (done.status, "OWNER/NAME@SHA" in done.error) == (2, True)


def test_set_up_brings_what_no_file_of_the_repository_names(repository: Path) -> None:
    source = InstallSource("someone/roofwatch", "a" * 40)
    (repository / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (repository / "setup.py").touch()
    (repository / "csrc").mkdir()
    (repository / "csrc" / "native.cu").touch()

    _, files = propose(repository, source)

    texts = {path.name: text for path, text in files.items()}
    assert "download.pytorch.org/whl/cpu . torch triton" in texts["roofwatch.yml"]
    assert 'inputs = ["csrc/**", "setup.py", "pyproject.toml"]' in texts["roofwatch.toml"]
    assert (
        "\nfrom launchers import add as add_function\nfrom roofwatch import"
        in texts["bench_my_kernels.py"]
    )


@pytest.fixture
def on_gitlab(repository: Path) -> Path:
    (repository / "requirements.txt").write_text("torch\n")
    run_git(repository, "remote", "add", "origin", "git@gitlab.example.com:owner/my-kernels.git")
    return repository


def test_a_repository_on_gitlab_gets_the_documented_pipeline(on_gitlab: Path) -> None:
    (documented,) = code_blocks(ROOT / "docs" / "how-to" / "gitlab.md", "yaml")
    _, files = propose(on_gitlab, InstallSource("roofwatch/roofwatch", "<commit>"))
    proposed = {
        path.name: text.replace("bench_my_kernels", "bench_layers") for path, text in files.items()
    }
    assert proposed[".gitlab-ci.yml"] == documented
    assert not {path for path in files if ".github" in path.parts}


def test_a_pipeline_of_its_own_is_kept_on_gitlab(on_gitlab: Path) -> None:
    (on_gitlab / ".gitlab-ci.yml").write_text("stages: [test]\n")
    done = roofwatch("init", "--from", SOURCE, "--yes", cwd=on_gitlab)
    assert "include: [{ local: .gitlab/roofwatch.yml }]" in done.output
    assert (on_gitlab / ".gitlab-ci.yml").read_text() == "stages: [test]\n"
    pipeline = yaml.safe_load((on_gitlab / ".gitlab" / "roofwatch.yml").read_text())
    assert pipeline.keys() == {"measure", "report"}


def test_nothing_is_written_without_a_yes(repository: Path) -> None:
    before = {*repository.iterdir()}

    proposed = roofwatch("init", "--from", SOURCE, "--json", cwd=repository).parsed

    assert set(proposed["files"].values()) == {"declined"}
    assert not [line for line in to_lines([], proposed["files"]) if line.startswith("next:")]
    assert {*repository.iterdir()} == before


def test_no_file_is_overwritten(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("mine")

    proposed = roofwatch("init", "--agents", "--yes", "--json", cwd=repository).parsed

    assert list(proposed["files"].values()) == ["exists"]
    assert (repository / "AGENTS.md").read_text() == "mine"


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    done = roofwatch("init", "--from", SOURCE, "--yes", cwd=tmp_path)

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
        ('dependencies = ["torch"]', "torch\n", "."),
        ("dependencies = []", "torch\n", "-r requirements.txt ."),
        ("dependencies = []", None, ". torch triton"),
        (None, "torch\n", "-r requirements.txt"),
        (None, None, "torch triton"),
    ],
)
def test_the_proposed_setup_installs_what_the_kernels_need(
    tmp_path: Path, project: str | None, requirements: str | None, setup: str
) -> None:
    folder = make_repository(tmp_path / "repository")
    for name, text in (("pyproject.toml", project), ("requirements.txt", requirements)):
        if text is not None:
            (folder / name).write_text(text)

    _, files = propose(folder, InstallSource("someone/roofwatch", "a" * 40))

    workflow = files[folder / ".github" / "workflows" / "roofwatch.yml"]
    command = f"pip install --extra-index-url https://download.pytorch.org/whl/cpu {setup}"
    assert f'setup: "{command}" }}' in workflow


def test_a_named_function_gets_a_benchmark_file_of_its_own(repository: Path) -> None:
    (repository / "losses.py").write_text(
        "import torch\n\n\ndef huber(x, target, delta: float):\n    return x - target\n"
    )

    done = roofwatch(
        "init", "--benchmark", "--function", "losses.py::huber", "--yes", cwd=repository
    )

    assert done.status == 0, done.error
    text = (repository / "bench_huber.py").read_text()
    assert "def huber_torch(x, target, delta):" in text
    assert not (repository / "roofwatch.toml").exists()
    wrong = roofwatch("init", "--benchmark", "--function", "losses.py::hubre", cwd=repository)
    assert "losses.py has huber" in wrong.error


def test_the_source_lists_kernels_whether_not_they_have_a_benchmark_file(repository: Path) -> None:
    (repository / "bench_add.py").write_text(
        "from roofwatch import KernelSpec\n"
        "from launchers import add\n"
        "spec = KernelSpec(name='add')\n"
        "spec.implementation('triton', name='mine')(add)\n"
    )

    listed = roofwatch("list", "--source", "--json", cwd=repository).parsed["kernels"]

    assert listed == [
        {"name": "add", "benchmark": "bench_add.py", "implementations": ["mine"]},
        {"name": "Copy", "benchmark": None, "found": "launchers.Copy"},
    ]
