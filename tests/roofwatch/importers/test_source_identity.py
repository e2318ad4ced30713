"""Whether the sources of an imported kernel changed from commit to commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofwatch.importers import FileImportError, ImportedCommit, ImportedRow, ImportedRun
from roofwatch.importers.source_identity import with_source_identity
from tests.git_repository import commit_all, make_repository

FILES = {
    "src/kernels/__init__.py": "from .ops import softmax\nfrom .other import unrelated\n",
    "src/kernels/ops/__init__.py": "from .softmax import softmax\n",
    "src/kernels/ops/softmax.py": '''
"""Softmax."""
from kernels.ops.utils import block
from .. import constants
softmax = block
''',
    "src/kernels/ops/utils.py": "block = 128\n",
    "src/kernels/constants.py": "WARPS = 4\n",
    "src/kernels/other.py": "unrelated = 1\n",
    "csrc/attention.cu": '#include "tiles.cuh"\n__global__ void attention() {}\n',
    "csrc/tiles.cuh": "#define TILE 64\n",
    "tests/softmax.py": "checked = 1\n",
}
CASES = ("softmax forward", "attention bwd", "dropout")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


def identities(repository: Path, shas: list[str]) -> dict[str, list[str | None]]:
    """The digest of each case at each commit."""
    rows = [
        ImportedRow(case=case, metric="time", value=1.0, commit=ImportedCommit(sha=sha))
        for case in CASES
        for sha in shas
    ]
    run = with_source_identity(ImportedRun(tool="x", rows=tuple(rows)), repository)
    return {case: [row.code_hash for row in run.rows if row.case == case] for case in CASES}


def commit(repository: Path, **changes: str) -> str:
    for name, text in {**FILES, **changes}.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return commit_all(repository)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("src/kernels/ops/softmax.py", "softmax forward"),
        ("src/kernels/ops/utils.py", "softmax forward"),
        ("src/kernels/constants.py", "softmax forward"),
        ("csrc/tiles.cuh", "attention bwd"),
        ("src/kernels/other.py", None),
        ("tests/softmax.py", None),
    ],
)
def test_only_what_a_kernel_imports_changes_its_identity(
    repository: Path, file: str, changed: str | None
) -> None:
    base = commit(repository)
    head = commit(repository, **{file: FILES[file] + "\nfurther = 1\n"})

    found = identities(repository, [base, head])
    assert {case for case in CASES if len(set(found[case])) > 1} == {changed} - {None}


def test_comments_and_docstrings_are_no_change(repository: Path) -> None:
    base = commit(repository)
    text = FILES["src/kernels/ops/softmax.py"].replace("Softmax.", "The softmax.  # more")
    head = commit(repository, **{"src/kernels/ops/softmax.py": f"# a comment\n{text}"})

    before, after = identities(repository, [base, head])["softmax forward"]
    assert before == after is not None


def test_a_kernel_without_a_file_of_its_name_is_unknown(repository: Path) -> None:
    sha = commit(repository)

    assert identities(repository, [sha])["dropout"] == [None]


def test_a_repository_without_any_of_the_commits_is_refused(repository: Path) -> None:
    commit(repository)

    with pytest.raises(FileImportError, match="has none of the 1 commits"):
        identities(repository, ["0" * 40])
