"""Repositories with a package `qk`, in the layouts that projects have, and a slower head."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.git_repository import commit_all, make_repository

BENCHMARK = """
from qk.ops import accumulate
from roofwatch import KernelSpec, cases

accumulated = KernelSpec(
    name="accumulated",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x * 2.0,
    cases=cases(shapes=[{"n": 20_000}], dtypes=["float32"]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 8 * case["n"],
)


@accumulated.implementation("torch")
def accumulated_torch(x):
    return accumulate(x)
"""

OPS = """import torch

ROUNDS = {rounds}


def accumulate(x):
    out = torch.zeros_like(x)
    for _ in range(ROUNDS):
        out += x * (2.0 / ROUNDS)
    return out
"""

C_OPS = """import torch

from qk import _native


def accumulate(x):
    _native.work()
    return x * 2.0
"""

C_SOURCE = """#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *work(PyObject *self, PyObject *unused) {{
    volatile double sum = 0.0;
    for (long i = 0; i < {rounds} * 20000L; i++) sum += 1e-9 * i;
    Py_RETURN_NONE;
}}

static PyMethodDef methods[] = {{{{"work", work, METH_NOARGS, ""}}, {{0}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "_native", "", -1, methods}};

PyMODINIT_FUNC PyInit__native(void) {{ return PyModule_Create(&module); }}
"""

SETUP = """from setuptools import Extension, setup

setup(
    name="qk",
    version="1.0",
    package_dir={{"": "{root}"}},
    packages=["qk"],
    ext_modules=[Extension("qk._native", ["csrc/native.c"])],
)
"""


def setuptools_project(root: str) -> str:
    return (
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
        '[project]\nname = "qk"\nversion = "1.0"\n\n'
        f'[tool.setuptools.packages.find]\nwhere = ["{root}"]\n'
    )


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make_pure(folder: Path, *, project: str = "", root: str = "python") -> Path:
    """A repository whose package lies in a folder of a distribution; one commit."""
    distribution = folder / project
    write(
        distribution,
        {
            "pyproject.toml": setuptools_project(root),
            f"{root}/qk/__init__.py": "",
            f"{root}/qk/ops.py": OPS.format(rounds=1),
        },
    )
    write(folder, {"bench/bench_qk.py": BENCHMARK})
    commit_all(make_repository(folder))
    return folder


def make_compiled(folder: Path, *, root: str) -> Path:
    """A repository whose package has a C extension; one commit."""
    write(
        folder,
        {
            "setup.py": SETUP.format(root=root),
            f"{root}/qk/__init__.py": "",
            f"{root}/qk/ops.py": C_OPS,
            "csrc/native.c": C_SOURCE.format(rounds=1),
            "bench_qk.py": BENCHMARK,
        },
    )
    commit_all(make_repository(folder))
    return folder


def make_inner(folder: Path) -> Path:
    """A repository with a C extension whose benchmark lies in its package, which does not install
    it; one commit.
    """
    make_compiled(folder, root=".")
    benchmark = folder / "bench_qk.py"
    write(
        folder,
        {
            "qk/bench/__init__.py": "",
            "qk/bench/bench_qk.py": benchmark.read_text().replace("from qk.ops", "from ..ops"),
        },
    )
    benchmark.unlink()
    commit_all(folder)
    return folder


def slow_down(repository: Path) -> None:
    """Commit a change that makes the package several times slower."""
    for file in [*repository.rglob("ops.py"), *repository.rglob("native.c")]:
        text = file.read_text()
        slower = text.replace("ROUNDS = 1\n", "ROUNDS = 9\n").replace("i < 1 *", "i < 9 *")
        file.write_text(slower)
    commit_all(repository, "Slower")


def install(source: Path, site: Path) -> dict[str, str]:
    """Install a distribution into a folder, as it is now; return the environment that finds it."""
    arguments = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, *arguments, "--target", site, source], check=True, capture_output=True)
    return {"PYTHONPATH": os.fspath(site)}


TRITON_OPS = """import torch
import triton
import triton.language as tl

ROUNDS = 1


@triton.jit
def _double_kernel(x_ptr, out_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for step in tl.static_range(ROUNDS):
        total += tl.load(x_ptr + offs + step - step, mask=offs < n) * (2.0 / ROUNDS)
    tl.store(out_ptr + offs, total, mask=offs < n)


def accumulate(x):
    out = torch.empty_like(x)
    n = x.numel()
    _double_kernel[(triton.cdiv(n, 1024),)](x, out, n, ROUNDS=ROUNDS, BLOCK=1024)
    return out
"""


def make_triton(folder: Path) -> Path:
    """A repository whose package, in a folder, has a Triton kernel; one commit."""
    benchmark = BENCHMARK.replace('"torch"', '"triton"').replace("20_000", "2_000")
    write(
        folder,
        {
            "pyproject.toml": setuptools_project("python"),
            "python/qk/__init__.py": "",
            "python/qk/ops.py": TRITON_OPS,
            "bench/bench_qk.py": benchmark,
        },
    )
    commit_all(make_repository(folder))
    return folder
