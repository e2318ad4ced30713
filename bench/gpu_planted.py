"""A repository with commits whose suite does more work than the one before, and a candidate for
`submit`.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

PLANTED_CASE_COUNT = 20
_SUITE = """
from roofwatch import KernelSpec, cases

planted_spec = KernelSpec(
    name="planted",
    family="memory",
    inputs=lambda case, make: {{"x": make.normal(int(case["n_elements"] * {factor}))}},
    reference=lambda x: x + 1,
    cases=cases(
        shapes=[{{"n_elements": {size} * number}} for number in range(1, {count} + 1)],
        tags=["quick", "small"],
    ),
    flop_count=lambda case: case["n_elements"],
    memory_bytes=lambda case: 2 * case["n_elements"] * case.itemsize,
)


@planted_spec.implementation("torch")
def planted(x):
    return x + 1
"""
_CANDIDATE = """
def candidate(x):
    return 1 + x
"""


def commit_suites(repository: Path, shares: Sequence[float], *, is_large: bool) -> None:
    """Make a repository with one commit for each share of additional work."""
    repository.mkdir(parents=True, exist_ok=True)
    # A step that is repeated finds the repository of its first attempt.
    if (repository / ".git").exists():
        return
    git = [
        "git",
        "-C",
        str(repository),
        "-c",
        "user.name=roofwatch",
        "-c",
        "user.email=roofwatch@localhost",
    ]
    size = 2**16
    count = 3
    if is_large:
        size = 2**22
        count = PLANTED_CASE_COUNT
    subprocess.run([*git, "init", "--quiet"], check=True)
    for share in shares:
        suite = _SUITE.format(factor=1 + share, size=size, count=count)
        (repository / "bench_planted.py").write_text(suite)
        subprocess.run([*git, "add", "bench_planted.py"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", f"{share:.0%} more work"], check=True)


def write_candidate(folder: Path) -> Path:
    """Write a candidate that is as fast as the kernel in torch; returns its file."""
    candidate = folder / "candidate.py"
    candidate.write_text(_CANDIDATE)
    return candidate
