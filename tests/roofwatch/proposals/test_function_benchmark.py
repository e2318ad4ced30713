"""A function without a benchmark file is checked from what its inputs look like."""

from pathlib import Path

import pytest

from roofwatch.model.errors import SuiteError
from roofwatch.proposals.function_benchmark import write_benchmark
from tests.git_repository import make_repository
from tests.roofwatch.command import roofwatch

OPERATORS = """
import torch


def double(x, factor=2.0):
    return x * factor


def wrong(x):
    return x * 2 + 0.5


def even(x):
    if x.shape[-1] % 2:
        return x * 3
    return x * 2
"""
REFERENCE = """
def double(x, factor=2.0):
    return x + x


def of_two(x, y):
    return x + y
"""
LIKE = "x: float32[64, 32]"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = make_repository(tmp_path / "kernels")
    (root / "operators.py").write_text(OPERATORS)
    (root / "references.py").write_text(REFERENCE)
    return root


def check(repository: Path, target: str, *options: str) -> tuple[int, str]:
    done = roofwatch("check", target, *options, cwd=repository)
    return done.status, done.output + done.error


@pytest.mark.slow
def test_the_benchmark_file_of_a_right_function_stays(repository: Path) -> None:
    options = ("--like", f"{LIKE}, factor=2.0", "--reference", "references.py::double")

    status, text = check(repository, "operators.py::double", *options)

    assert status == 0, text
    assert "wrote bench_double.py" in text
    assert roofwatch("list", "bench_double.py", cwd=repository).status == 0


@pytest.mark.slow
def test_a_wrong_function_fails(repository: Path) -> None:
    options = ("--like", LIKE, "--reference", "references.double")

    status, text = check(repository, "operators.py::wrong", *options)

    assert status == 1
    assert "incorrect" in text


def test_a_function_in_a_package_is_imported_by_its_full_name(tmp_path: Path) -> None:
    package = tmp_path / "mine" / "ops"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "gelu.py").write_text("def gelu(x, rows):\n    import triton\n")

    benchmark = write_benchmark(
        f"{package / 'gelu.py'}::gelu",
        "x: bfloat16[4096, 1024], rows: int64[4096] from 0 to 4095, lengths: int32[8] from 1 to 1024",
        "torch.nn.functional.gelu",
    )

    assert benchmark.parent.resolve() == tmp_path.resolve()
    text = benchmark.read_text()
    assert "from mine.ops.gelu import gelu" in text
    assert '(case["dim_0"], low=0, high=case["dim_0"], dtype="int64")' in text
    assert '(case["dim_2"], low=1, high=case["dim_1"] + 1, dtype="int32")' in text
    assert 'implementation("triton", name="gelu")' in text


@pytest.mark.parametrize(
    ("like", "reference", "message"),
    [
        ("x: float99[4]", "torch.relu", "x has dtype 'float99'"),
        ("x is large", "torch.relu", "cannot read x is large"),
        (LIKE, "relu", "--reference relu: give a dotted name"),
        (LIKE, "operators.py:double", "operators.py:double: give a dotted name"),
        ("rows: int64[8]", "torch.relu", "rows: integers, and no other dtype, need"),
        ("x: float32[8] from 0 to 1", "torch.relu", "x: integers, and no other dtype, need"),
        ("rows: int64[8] from 2 to 1", "torch.relu", "rows: integers, and no other dtype, need"),
    ],
)
def test_a_description_that_cannot_be_read_is_named(
    like: str, reference: str, message: str, repository: Path
) -> None:
    with pytest.raises(SuiteError, match=message):
        write_benchmark(f"{repository / 'operators.py'}::double", like, reference)

    assert not (repository / "bench_double.py").exists()


def test_a_file_that_somebody_edited_is_kept_beside_the_next_one(repository: Path) -> None:
    edited = repository / "bench_double.py"
    edited.write_text("# mine\n")
    target = f"{repository / 'operators.py'}::double"

    benchmark = write_benchmark(target, LIKE, "references.double")

    assert benchmark != edited
    assert edited.read_text() == "# mine\n"
    assert write_benchmark(target, LIKE, "references.double") == benchmark


@pytest.mark.slow
def test_a_function_that_is_wrong_at_odd_lengths_only_fails(repository: Path) -> None:
    options = ("--like", LIKE, "--reference", "references.double")

    status, text = check(repository, "operators.py::even", *options)

    assert status == 1
    assert "dim_1=3/float32/fwd even: incorrect" in text
    assert "dim_1=32/float32/fwd even:" not in text


@pytest.mark.slow
def test_a_reference_that_cannot_be_called_leaves_no_file(repository: Path) -> None:
    options = ("--like", LIKE, "--reference", "references.of_two")

    status, text = check(repository, "operators.py::double", *options)

    assert status == 2
    assert "cannot tell: double: the reference failed" in text
    assert not (repository / "bench_double.py").exists()


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("operators.py::double", (), "say what its inputs look like"),
        (
            "operators.py::missing",
            ("--like", LIKE, "--reference", "a.b"),
            "has no function missing",
        ),
        ("operators.py", ("--like", LIKE), "describe a function, such as my_ops.py::gelu"),
    ],
)
def test_a_missing_description_says_how_to_give_one(
    target: str, options: tuple[str, ...], message: str, repository: Path
) -> None:
    status, text = check(repository, target, *options)

    assert status == 2
    assert message in text
