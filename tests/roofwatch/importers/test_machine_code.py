"""Machine code of imported kernels at each commit, compiled from a small repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.importers import ImportedCommit, ImportedRow, ImportedRun
from roofwatch.importers.machine_code import CompiledCommits, find_suite
from roofwatch.model.code_identity import CodeIdentity
from roofwatch.model.metrics import Better
from tests.git_repository import commit_all, make_repository

pytest.importorskip("triton")

_BENCH = """
import torch
import triton
import triton.language as tl
from roofwatch import KernelSpec, cases


@triton.jit
def _double_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {name} = tl.load(x_ptr + offsets)
    tl.store(y_ptr + offsets, {factor} * {name})


double = KernelSpec(
    name="double",
    inputs=lambda case, make: {{"x": make.normal(case["n"])}},
    reference=lambda x: {factor} * x,
    cases=cases(shapes=[{{"n": 1024}}], directions=["fwd"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 2 * case["n"] * case.itemsize,
)


@double.implementation("triton")
def double_triton(x):
    y = torch.empty_like(x)
    _double_kernel[(x.shape[0] // 256,)](x, y, BLOCK=256)
    return y
"""
_PLAN = RunPlan(device="cpu", usual_tag="quick", targets=("sm_90",))


def _commit(repository: Path, text: str) -> str:
    (repository / "bench_double.py").write_text(text)
    return commit_all(repository)


def _row(sha: str, case: str = "double forward", code_hash: str | None = None) -> ImportedRow:
    return ImportedRow(
        case=case,
        metric="time",
        value=1.0,
        unit="ms",
        better=Better.LOWER,
        commit=ImportedCommit(sha=sha),
        code_hash=code_hash,
    )


def test_each_known_commit_is_compiled_once(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "kernels")
    first = _commit(repository, _BENCH.format(name="x", factor=2.0))
    renamed = _commit(repository, _BENCH.format(name="values", factor=2.0))
    (repository / "README.md").write_text("# Kernels\n")
    described = commit_all(repository)
    broken = _commit(repository, "import missing_module\n")
    tripled = _commit(repository, _BENCH.format(name="values", factor=3.0))
    suite = find_suite(repository)
    assert suite == repository
    compiled: list[str] = []
    commits = CompiledCommits(suite, _PLAN, on_commit=compiled.append)

    rows = [_row(first, code_hash="abc"), _row(renamed), _row(broken), _row(tripled)]
    rows += [_row(first, case="softmax"), _row("0" * 40), _row(described)]
    run = commits.complete(ImportedRun(tool="table", rows=tuple(rows)))

    codes = [CodeIdentity.parse(row.code_hash) for row in run.rows]
    assert codes[0].machine_code == codes[1].machine_code is not None
    assert codes[0].machine_code != codes[3].machine_code
    assert codes[0].sources == "abc"
    assert codes[1].sources is not None
    # a suite that does not load, a kernel that it lacks, and an unknown commit
    assert [code.machine_code for code in (codes[2], codes[4], codes[5])] == [None, None, None]
    # a commit that changes no code is not compiled again
    assert codes[6] == codes[1]
    assert len(compiled) == 5
    assert len(commits.notes) == 2
    assert "missing_module" in commits.notes[0]
