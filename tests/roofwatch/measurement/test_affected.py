"""Kernels that a change can affect, in a real repository."""

from pathlib import Path

import pytest

from roofwatch.measurement.revisions import Affected, find_affected
from roofwatch.model.record import RunRecord
from tests.git_repository import commit_all, commit_file, git, make_repository
from tests.roofwatch.command import roofwatch
from tests.roofwatch.measurement.benchmark import benchmark


def benchmark_of(module: str) -> str:
    return benchmark(module, module=module, function=f"{module}_times")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two kernels, each with a module of its own; `first` uses `shared.py` besides."""
    folder = tmp_path / "repository"
    (folder / "bench").mkdir(parents=True)
    for module, body in (("first", "from shared import FACTOR\n"), ("second", "FACTOR = 2.0\n")):
        (folder / f"{module}.py").write_text(
            f"{body}\n\ndef {module}_times(x):\n    return x * FACTOR\n"
        )
        (folder / "bench" / f"bench_{module}.py").write_text(benchmark_of(module))
    (folder / "shared.py").write_text("FACTOR = 2.0\n")
    (folder / "body.cu").write_text("// one\n")
    (folder / "README.md").write_text("Two kernels\n")
    commit_all(make_repository(folder))
    return folder


def test_a_kernel_is_affected_if_an_imported_module_changed(repository: Path) -> None:
    (repository / "shared.py").write_text("FACTOR = 1.0 + 1.0\n")
    commit_file(repository, "README.md", "Two kernels, one of them shares\n")

    found = find_affected(repository / "bench", "HEAD~1", "HEAD")

    assert found == Affected(kernels=("first",), skipped=("second",))
    assert found.summary == "skipped, source unchanged: second"


def add_third_kernel(repository: Path) -> None:
    (repository / "third.py").write_text("def third_times(x):\n    return x + x\n")
    (repository / "bench" / "bench_third.py").write_text(benchmark_of("third"))


def test_a_new_kernel_counts_before_it_is_committed(repository: Path) -> None:
    add_third_kernel(repository)

    affected = find_affected(repository / "bench", "HEAD", None)

    assert (affected.kernels, affected.skipped) == (("third",), ("first", "second"))


def test_a_changed_data_file_affects_every_kernel(repository: Path) -> None:
    add_third_kernel(repository)
    (repository / "body.cu").write_text("// two\n")

    affected = find_affected(repository / "bench", "HEAD", None)

    assert (affected.kernels, affected.skipped) == (("first", "second", "third"), ())
    assert affected.summary == "every kernel is affected: body.cu changed"


@pytest.fixture
def proposed(tmp_path: Path) -> Path:
    """A repository with two Triton kernels, and the benchmark file that `init` proposes."""
    folder = tmp_path / "proposed"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").touch()
    for name in ("first", "second"):
        (folder / "pkg" / f"{name}.py").write_text(KERNEL.format(name=name))
    commit_all(make_repository(folder))
    assert roofwatch("init", "--yes", cwd=folder).status == 0
    commit_all(folder)
    return folder


KERNEL = """import triton
import triton.language as tl


@triton.jit
def _{name}_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def {name}(x):
    _{name}_kernel[(1,)](x, x.numel(), BLOCK=16)
    return x
"""


def test_of_a_file_that_init_wrote_only_the_changed_kernel_is_affected(proposed: Path) -> None:
    (suite,) = proposed.glob("bench_*.py")
    changed = proposed / "pkg" / "second.py"
    changed.write_text(changed.read_text().replace("BLOCK=16", "BLOCK=32"))

    assert find_affected(suite, "HEAD", None) == Affected(kernels=("second",), skipped=("first",))

    git(proposed, "checkout", "--quiet", "--", "pkg")
    suite.write_text(
        suite.read_text().replace(
            "    return first_function(x)", "    return first_function(x + 0)"
        )
    )
    assert find_affected(suite, "HEAD", None) == Affected(kernels=("first",), skipped=("second",))


def test_files_that_no_kernel_reads_affect_none(repository: Path) -> None:
    (repository / "roofwatch-records").mkdir()
    (repository / "roofwatch-records" / "head-0123.json.gz").write_bytes(b"a record")
    (repository / "NOTES.txt").write_text("Remember the milk\n")

    found = find_affected(repository / "bench", "HEAD", None)

    assert found == Affected(kernels=(), skipped=("first", "second"))


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("NOTES.txt", 'open("NOTES.txt")'),
        ("NOTES.txt", 'Path("data").glob("*.txt")'),
        ("NOTES.txt", 'Path("NOTES").with_suffix(".txt")'),
        ("requirements.txt", "pass"),
        ("weights.bin", "pass"),
    ],
)
def test_a_file_that_code_may_read_affects_every_kernel(
    repository: Path, file: str, code: str
) -> None:
    commit_file(repository, "reading.py", f"from pathlib import Path\n\ndef read():\n    {code}\n")
    (repository / file).write_text("1\n")

    found = find_affected(repository / "bench", "HEAD", None)

    assert found.summary == f"every kernel is affected: {file} changed"


def test_ab_measures_affected_kernels_alone(repository: Path) -> None:
    (repository / "first.py").write_text("def first_times(x):\n    return x + x\n")

    done = roofwatch(
        "ab",
        "bench",
        "--base",
        "HEAD",
        "--affected",
        "--blocks",
        "3",
        "--budget",
        "0",
        "--json",
        cwd=repository,
    )

    assert {
        case["subject"]["case_id"].split("/")[0] for case in done.parsed["judgement"]["cases"]
    } == {"first"}, done.error
    assert done.parsed["judgement"]["skipped"] == ["second"]
    for file in done.parsed["records"]:
        assert RunRecord.read(repository / file).skipped == ("second",)
    assert "skipped, source unchanged: second" in done.error
