"""A repository that adopts roofwatch, and changes to it that a CI system builds."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.git_repository import commit_all, git, make_repository

SUITE = """
import torch
from roofwatch import KernelSpec, cases

scale = KernelSpec(
    name="scale",
    inputs=lambda case, make: {"x": make.normal(case["n_rows"], 512)},
    reference=lambda x: x * 2.0,
    cases=cases(shapes=[{"n_rows": 256}], dtypes=["float32"]),
    flop_count=lambda case: case["n_rows"] * 512,
    memory_bytes=lambda case: 2 * case["n_rows"] * 512 * case.itemsize,
)


@scale.implementation("torch")
def scale_torch(x):
    return x * 2.0
"""
SLOWER = SUITE.replace(
    "    return x * 2.0\n", "    return sum((x * 0.125 for _ in range(15)), x * 0.125)\n"
)
"""Slow enough for a busy machine."""
CHANGES = {
    "documentation": ("README.md", "What it does.\n"),
    "broken head": ("bench_layers.py", "raise RuntimeError('not today')\n"),
    "slower": ("bench_layers.py", SLOWER),
}


@dataclass(frozen=True)
class Checkout:
    """The head of a change, with the target branch at `origin/main`."""

    folder: Path
    base: str
    head: str


def make_checkout(folder: Path, change: str) -> Checkout:
    origin = make_repository(folder / "origin")
    (origin / "bench_layers.py").write_text(SUITE)
    (origin / "requirements.txt").touch()
    base = commit_all(origin)
    git(origin, "checkout", "--quiet", "-b", "topic")
    name, text = CHANGES[change]
    (origin / name).write_text(text)
    head = commit_all(origin)
    git(folder, "clone", "--quiet", "--branch", "topic", str(origin), "checkout")
    return Checkout(folder / "checkout", base, head)


def environment(folder: Path, **programs: str) -> dict[str, str]:
    """Variables with a folder of programs first on PATH: roofwatch, a pip that finds everything
    installed, and shell scripts by name.
    """
    scripts = folder / "bin"
    scripts.mkdir()
    # nothing is published yet: what `pip install roofwatch` would bring is this environment
    texts = {"roofwatch": f'exec {sys.executable} -P -m roofwatch "$@"', "pip": "exit 0"} | programs
    for name, text in texts.items():
        (scripts / name).write_text(f"#!/bin/sh\n{text}\n")
        (scripts / name).chmod(0o755)
    return {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "NO_COLOR": "1"}
