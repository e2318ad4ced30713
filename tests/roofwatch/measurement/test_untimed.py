"""A Triton kernel on a machine without a GPU, through the real commands."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.git_repository import commit_all, commit_file, make_repository
from tests.roofwatch.command import Done, roofwatch

BENCHMARK = """
from launcher import add_triton
from roofwatch import KernelSpec, cases

add = KernelSpec(
    name="add",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x + x,
    cases=cases(shapes=[{"n": 4096}], dtypes=["float32"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
    interpreted_shape={"n": 512},
)
add.implementation("triton")(add_triton)
"""
LAUNCHER = """
import torch
import triton
import triton.language as tl


@triton.jit
def _add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + x, mask=mask)


def add_triton(x):
    out = torch.empty_like(x)
    _add_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""


def ab(folder: Path) -> Done:
    words = ["--base", "HEAD~1", "--head", "HEAD", "--targets", "sm_90", "--budget", "0"]
    return roofwatch("ab", "bench_add.py", *words, "--device", "cpu", cwd=folder)


def make_repository_of_launcher(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "repository")
    commit_file(folder, ".gitignore", "__pycache__\nroofwatch-records\n")
    (folder / "bench_add.py").write_text(BENCHMARK)
    commit_file(folder, "launcher.py", LAUNCHER)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel would be timed")
def test_a_launcher_with_an_extra_clone_costs_more(tmp_path: Path) -> None:
    folder = make_repository_of_launcher(tmp_path)
    commit_file(folder, "launcher.py", LAUNCHER.replace("return out", "return out.clone()"))

    changed = ab(folder)

    assert changed.status == 1, changed.error
    assert "offsets or operators of 1 benchmark worse" in changed.output
    assert "time of 1 kernel not measured (no GPU)" in changed.output


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel would be timed")
def test_more_host_work_of_a_launcher_is_undecided_unlike_a_comment(tmp_path: Path) -> None:
    folder = make_repository_of_launcher(tmp_path)
    slower = LAUNCHER.replace("    return out", "    sum(range(100_000))\n    return out")
    commit_file(folder, "launcher.py", slower)

    changed = ab(folder)

    assert changed.status == 2, changed.error
    assert "sources of 1 kernel changed; time of 1 kernel not measured (no GPU)" in changed.output
    assert "machine code 1 identical" in changed.output
    files = sorted((folder / "roofwatch-records").glob("*.json.gz"))
    settings = folder / "roofwatch.toml"
    for policy, status in (('untimed = "pass"', 0), ('requires = ["time"]', 1)):
        settings.write_text(f"[check]\n{policy}\n")
        assert roofwatch("compare", *files, cwd=folder).status == status
    settings.unlink()

    (folder / "launcher.py").write_text(f"# the same\n{slower}")
    commit_all(folder)
    same = ab(folder)

    assert same.status == 0, same.error
    assert "accuracy ok; same code in 1 benchmark, time not measured (no GPU)" in same.output
