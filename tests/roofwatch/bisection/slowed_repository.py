"""A git repository whose benchmark becomes much slower at one commit, and does not import at
another.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.git_repository import commit_file, make_repository

SERIES = "total/n=500/float32/fwd"

BENCHMARK = """
from roofwatch import KernelSpec, cases
from work import ROUNDS

total = KernelSpec(
    name="total",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x.square().sum(),
    cases=cases(shapes=[{"n": 500}], directions=["fwd"]),
    flop_count=lambda case: 2 * case["n"],
    memory_bytes=lambda case: case["n"] * case.itemsize,
)


@total.implementation("torch")
def total_eager(x):
    for _ in range(ROUNDS):
        y = (x * x).sum()
    return y
"""
QUICK, SLOW = "ROUNDS = 4", "ROUNDS = 40"
_HISTORY = (
    ("Begin", "work.py", QUICK),
    ("Name a constant", "work.py", f"{QUICK}\nOTHER = 1"),
    ("Say what it is", "work.py", f"{QUICK}  # rounds of work\nOTHER = 1"),
    ("Break the import", "work.py", "raise RuntimeError('not today')"),
    ("Mend it", "work.py", f"{QUICK}\nOTHER = 2"),
    ("Work ten times as much", "work.py", f"{SLOW}\nOTHER = 2"),
    ("Write a page", "page.md", "What it does.\n"),
    ("Name another constant", "work.py", f"{SLOW}\nOTHER = 3"),
    ("Say that too", "work.py", f"{SLOW}  # rounds\nOTHER = 3"),
    ("End", "work.py", f"{SLOW}\nOTHER = 4"),
)


@dataclass(frozen=True)
class SlowedRepository:
    folder: Path
    shas: tuple[str, ...]
    """The oldest first, which is the good end."""

    @property
    def benchmark(self) -> Path:
        return self.folder / "bench_total.py"

    def sha(self, subject: str) -> str:
        return self.shas[[each for each, _, _ in _HISTORY].index(subject)]


def make_slowed_repository(folder: Path) -> SlowedRepository:
    make_repository(folder)
    (folder / "bench_total.py").write_text(BENCHMARK)
    shas = tuple(commit_file(folder, file, text, subject) for subject, file, text in _HISTORY)
    return SlowedRepository(folder, shas)
