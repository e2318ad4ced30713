"""`roofwatch static` against a revision, in a real repository, compiled for real."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.git_repository import commit_all, git, make_repository
from tests.roofwatch.command import Done, roofwatch

SUITE = """\
import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases


@triton.jit
def _scale_rows_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n_cols + offs, mask=offs < n_cols)  # [BLOCK]
    tl.store(y_ptr + tl.program_id(0) * n_cols + offs, x / tl.sum(x * x), mask=offs < n_cols)


scale_rows = KernelSpec(
    name="scale_rows",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], case["n_cols"])},
    reference=lambda x: x / (x * x).sum(-1, keepdim=True),
    cases=cases(shapes=[{"n_rows": 64, "n_cols": 4096}], directions=["fwd"]),
    flop_count=lambda case: 3 * case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 8 * case["n_rows"] * case["n_cols"],
)


@scale_rows.implementation("triton")
def scale_rows_triton(x):
    y = torch.empty_like(x)
    _scale_rows_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
    return y
"""
SPILL = ("BLOCK=4096, num_warps=8", "BLOCK=16384, num_warps=1")


class Repository:
    """A work tree with one commit of the suite."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.benchmark = folder / "bench_rows.py"
        self.baseline = folder / "roofwatch-static.toml"
        make_repository(folder)
        self.benchmark.write_text(SUITE)
        commit_all(folder)

    def change(self, *replacements: tuple[str, str]) -> None:
        text = SUITE
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        self.benchmark.write_text(text)

    def static(self, *arguments: str | Path, targets: str = "sm_90") -> Done:
        return roofwatch(
            "static", self.benchmark, "--targets", targets, *arguments, cwd=self.folder.parent
        )

    def judged(self, *, targets: str = "sm_90") -> tuple[int, dict[str, Any]]:
        """The exit status and the document of a comparison with HEAD."""
        done = self.static("--base", "HEAD", "--json", targets=targets)
        assert done.status == done.parsed["exit_code"], done.error
        return done.status, done.parsed


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")


HARMLESS = [
    ("    offs = tl.arange", "    # of one row\n\n    offs = tl.arange"),
    ("_scale_rows_kernel", "_rows_kernel"),
    ("import torch\nimport triton\n", "import triton\nimport torch\n"),
]


def test_a_suite_without_kernels_to_compile(tmp_path: Path) -> None:
    suite = tmp_path / "bench_eager.py"
    jitted, launcher = (SUITE.index(line) for line in ("@triton.jit", "@scale_rows.implementation"))
    declared = SUITE[SUITE.index("scale_rows = ") : launcher]
    suite.write_text(
        f'{SUITE[:jitted]}{declared}scale_rows.implementation("torch")(lambda x: x / (x * '
        f"x).sum(-1, keepdim=True))\n"
    )

    done = roofwatch("static", suite, "--targets", "sm_90", cwd=tmp_path)

    assert done.status == 0, done.error
    assert done.output == "nothing to compile: the suite has no Triton or CUDA C++ kernels\n"


def test_source_that_compiles_to_the_same_code_is_the_same_code(repository: Repository) -> None:
    repository.change(*HARMLESS)

    status, document = repository.judged(targets="sm_90,gfx942")

    assert status == 0
    assert document["judged"] == []
    assert document["unchanged_by_target"] == {"gfx942": 1, "sm_90": 1}


def test_a_tile_that_spills_into_memory_is_a_regression(repository: Repository) -> None:
    repository.change(SPILL)

    status, document = repository.judged(targets="sm_80,gfx942")

    assert status == 1
    # on gfx942 the values go to other registers: no memory is used, so it is a fact and no verdict
    assert [(item["target"], item["verdict"], item["reason"]) for item in document["judged"]] == [
        ("gfx942", "unchanged", "code_changed"),
        ("sm_80", "regressed", "spills_changed"),
    ]
    assert (
        "the tile of 16384 (BLOCK) no longer fits into the registers of 1 warp"
        in document["judged"][1]["detail"]
    )


def test_code_that_no_longer_compiles_is_a_regression_with_the_compiler_message(
    repository: Repository,
) -> None:
    repository.change(("tl.sum(x * x)", "tl.summ(x * x)"))

    done = repository.static("--base", "HEAD")

    assert done.status == 1
    assert "summ" in done.output
    assert "target_lost" in done.output


def test_accepted_code_passes_until_it_gets_worse(
    repository: Repository,
) -> None:
    repository.change(SPILL)
    accepted = repository.static("--base", "HEAD", "--accept", "one pass over long rows")
    assert accepted.status == 0, accepted.error
    assert 'reason = "one pass over long rows"' in repository.baseline.read_text()
    passed = repository.static("--base", "HEAD")
    assert (passed.status, "accepted" in passed.output) == (0, True)

    accepts_less = re.sub(r"local_bytes = \d+", "local_bytes = 8", repository.baseline.read_text())
    repository.baseline.write_text(accepts_less)
    worse = repository.static()
    assert worse.status == 1
    assert "worse_than_accepted" in worse.output

    repository.change()
    better = repository.static()
    assert better.status == 0
    assert "better than the baseline: update it with --tighten" in better.output
    assert repository.baseline.read_text() == accepts_less
    assert "updated: 1" in repository.static("--tighten").output
    assert "local_bytes = 0" in repository.baseline.read_text()

    repository.change(("scale_rows", "scaled_rows"))
    stale = repository.static("--tighten")
    assert "removed: 1" in stale.output
    assert "[[accepted]]" not in repository.baseline.read_text()


LARGE = ('"n_rows": 64, "n_cols": 4096', '"n_rows": 524289, "n_cols": 4096')
WIDE = ("tl.program_id(0) * n_cols", "tl.program_id(0).to(tl.int64) * n_cols")
READ = ("y = torch.empty_like(x)\n", "y = torch.empty_like(x)\n    float(x[0, 0])\n")
COPY = ("y = torch.empty_like(x)\n", "y = torch.empty_like(x)\n    x = x.clone()\n")


@pytest.mark.slow
def test_an_overflow_at_a_declared_size_fails_until_somebody_accepts_it(
    repository: Repository,
) -> None:
    repository.change(LARGE)

    unsafe = repository.static()
    accepted = repository.static("--accept", "no model has so many rows")
    passed = repository.static()
    repository.change(LARGE, WIDE)
    fixed = repository.static("--tighten")

    assert unsafe.status == 1
    assert "offset_overflow" in unsafe.output
    assert (accepted.status, passed.status, fixed.status) == (0, 0, 0)
    assert "updated: 1" in fixed.output


@pytest.mark.slow
def test_what_a_launcher_loses_is_a_regression(repository: Repository) -> None:
    repository.change(WIDE)
    commit_all(repository.folder)
    repository.change(COPY)

    status, document = repository.judged()

    assert status == 1
    reasons = {item["reason"]: item["detail"] for item in document["judged"]}
    assert "offsets fit at any n_rows → only up to 524,288" in reasons["offset_limit_changed"]
    assert "clone 0 → 1" in reasons["operator_cost_changed"]


@pytest.mark.slow
def test_reading_a_value_in_a_launcher_is_a_regression_until_it_is_accepted(
    repository: Repository,
) -> None:
    repository.change(READ)

    status, document = repository.judged()
    (item,) = document["judged"]
    accepted = repository.static("--base", "HEAD", "--accept", "the launcher needs the value")
    passed = repository.static("--base", "HEAD")

    assert (status, item["reason"]) == (1, "operator_cost_changed")
    assert item["detail"] == "waits for the device 0 → 1, item 0 → 1"
    assert (accepted.status, passed.status) == (0, 0)


def _commit_a_base_that_does_not_load(repository: Repository) -> None:
    repository.benchmark.write_text("import no_such_module\n" + SUITE)
    commit_all(repository.folder)
    repository.change()


def _write_a_bad_baseline(repository: Repository) -> None:
    repository.baseline.write_text("version = 9\n")


def test_an_uncommitted_benchmark_file_is_used_at_the_base_too(repository: Repository) -> None:
    git(repository.folder, "mv", "bench_rows.py", "bench_old.py")
    commit_all(repository.folder)
    repository.change()

    done = repository.static("--base", "HEAD")

    assert done.status == 0, done.error
    assert "bench_rows.py: not in HEAD" in done.error


def test_cases_of_the_work_tree_are_compiled_at_the_base_too(repository: Repository) -> None:
    # a spec that only imports the kernel: a file whose code changed stays that of its commit
    code, spec = SUITE.split("scale_rows = ")
    kernels = repository.folder / "rows.py"
    header = "from roofwatch import KernelSpec, cases\nfrom rows import _scale_rows_kernel, torch\n"
    spec = f"{header}\nscale_rows = {spec}"
    kernels.write_text(code)
    repository.benchmark.write_text(spec)
    commit_all(repository.folder)
    repository.benchmark.write_text(spec.replace('directions=["fwd"]', 'dtypes=["float16"]'))
    kernels.write_text(code.replace("    x = ", "    # the same code\n    x = "))

    status, document = repository.judged()

    assert status == 0, document
    assert document["unchanged_by_target"] == {"sm_90": 1}


def test_a_module_that_is_not_in_the_base_is_named_with_what_to_do(repository: Repository) -> None:
    git(repository.folder, "mv", "bench_rows.py", "bench_old.py")
    commit_all(repository.folder)
    (repository.folder / "helper.py").write_text("ROWS = 64\n")
    repository.benchmark.write_text("from helper import ROWS\n" + SUITE)

    done = repository.static("--base", "HEAD")

    assert done.status == 2
    assert "helper.py is not in that commit" in done.error


@pytest.mark.parametrize(
    ("prepare", "arguments", "expected"),
    [
        (_commit_a_base_that_does_not_load, ("--base", "HEAD"), "base HEAD: bench_rows"),
        (_write_a_bad_baseline, (), "roofwatch-static.toml: version"),
        (None, ("--base", "HEAD", "--accept", " "), "--accept: give a reason"),
    ],
)
def test_errors_are_one_line_with_exit_status_2(
    repository: Repository,
    prepare: Callable[[Repository], None] | None,
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    if prepare is not None:
        prepare(repository)

    done = repository.static(*arguments)

    assert done.status == 2
    assert expected in done.error
    assert done.error.count("\n") == 1
    assert len(git(repository.folder, "worktree", "list").splitlines()) == 1
