"""Base and head of a change, in real repositories."""

import json
import subprocess
from pathlib import Path

import pytest

from roofwatch.collector.build.revision import replace_benchmarks
from roofwatch.measurement.revisions import find_base
from roofwatch.model.errors import GitError
from roofwatch.model.record import RunRecord
from tests.git_repository import commit_file, git, make_repository
from tests.roofwatch.command import Done, roofwatch, started_roofwatch
from tests.roofwatch.measurement.benchmark import benchmark

OPS = "def twice(x):\n    return x * 2.0\n"
BENCHMARK = benchmark("double", module="ops", function="twice")


# --- the base


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone on a branch `change` with one commit; `main` went on meanwhile."""
    origin = make_repository(tmp_path / "origin")
    for number in range(2):
        commit_file(origin, "file", str(number))
    git(tmp_path, "clone", "--quiet", str(origin), "clone")
    folder = tmp_path / "clone"
    git(folder, "checkout", "--quiet", "-b", "change")
    commit_file(folder, "change", "a change")
    commit_file(origin, "file", "more")
    git(folder, "fetch", "--quiet")
    return folder


@pytest.mark.parametrize("variables", [{}, {"GITHUB_BASE_REF": "main"}])
def test_the_base_is_where_the_branch_left_its_target(
    clone: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    left = git(clone, "rev-parse", "HEAD~1")
    merge_queue = tmp_path / "event.json"
    earlier = git(clone, "rev-parse", "HEAD~2")
    merge_queue.write_text(json.dumps({"merge_group": {"base_sha": earlier}}))

    assert find_base(clone, "auto", None, variables) == left
    assert find_base(clone, "auto", "change", variables) == left
    assert find_base(clone, "HEAD~1", None, variables) == "HEAD~1"
    assert find_base(clone, "auto", None, {"GITHUB_EVENT_PATH": str(merge_queue)}) == earlier


def test_the_base_of_the_merge_commit_that_github_checks_out_is_the_target(clone: Path) -> None:
    target = git(clone, "rev-parse", "origin/main")
    git(clone, "checkout", "--quiet", "--detach", "origin/main")
    git(clone, "merge", "--quiet", "--no-ff", "--message", "Merge", "change")

    assert find_base(clone, "auto", None, {"GITHUB_BASE_REF": "main"}) == target


def test_a_base_that_is_not_here_is_refused_with_the_way_out(clone: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'origin'}"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", url, tmp_path / "shallow"], check=True
    )
    git(clone, "checkout", "--quiet", "origin/main")

    with pytest.raises(
        GitError, match=r"refs/heads/release; name another base, or .* `fetch-depth: 0`"
    ):
        find_base(tmp_path / "shallow", "auto", None, {"GITHUB_BASE_REF": "release"})
    with pytest.raises(GitError, match="is part of main, so it has no base; name one"):
        find_base(clone, "auto", None, {})
    (clone / "file").write_text("not committed")
    assert find_base(clone, "auto", None, {}) == git(clone, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "arguments",
    [
        "ab bench_double.py --base HEAD~1",
        "static bench_double.py --base HEAD~1",
        "bisect bench_double.py --good HEAD~1 --bad HEAD --series double/n=8/float32/fwd/torch",
    ],
)
def test_a_revision_that_a_shallow_clone_lacks_is_explained(
    repository: Path, tmp_path: Path, arguments: str
) -> None:
    url = f"file://{repository}"
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", url, tmp_path / "shallow"], check=True
    )
    done = roofwatch(*arguments.split(), cwd=tmp_path / "shallow")

    assert done.status == 2
    assert "HEAD~1" in done.error
    assert "the clone is shallow" in " ".join(done.error.split())
    assert "`fetch-depth: 0`" in " ".join(done.error.split())


# --- benchmark files of the head


@pytest.mark.parametrize(
    ("own", "heads", "is_replaced"),
    [
        (None, BENCHMARK, True),
        (BENCHMARK, BENCHMARK.replace('"n": 8', '"n": 16'), True),
        (BENCHMARK, BENCHMARK + "\nfrom ops import thrice" + "\n\ndef more():\n    pass\n", True),
        (BENCHMARK, BENCHMARK, False),
        (BENCHMARK, BENCHMARK.replace("return twice(x)", "return twice(x) + 0.0"), False),
        (BENCHMARK + "FACTOR = 1\n", BENCHMARK + "FACTOR = 2\n", False),
        (
            BENCHMARK,
            BENCHMARK.replace("from ops import twice", "from ops import slow as twice"),
            False,
        ),
        (BENCHMARK + "\n\ndef removed():\n    pass\n", BENCHMARK, False),
        (BENCHMARK, "this is no Python", False),
    ],
    ids=[
        "new",
        "cases",
        "additions",
        "same",
        "function",
        "constant",
        "import",
        "removed",
        "broken",
    ],
)
def test_the_head_s_benchmark_file_is_used_unless_code_in_it_changed(
    tmp_path: Path, own: str | None, heads: str, is_replaced: bool
) -> None:
    """Otherwise the base would run the head's code, and the change would not be measured."""
    base, head = tmp_path / "base" / "bench_x.py", tmp_path / "head" / "bench_x.py"
    for file, text in ((base, own), (head, heads)):
        file.parent.mkdir()
        if text is not None:
            file.write_text(text)

    assert replace_benchmarks(base, head) is is_replaced
    assert base.read_text() == (heads if is_replaced else own)
    if own is not None:
        base.write_text(own)
    assert replace_benchmarks(base.parent, head.parent) is (is_replaced and own is not None)


def test_a_folder_with_a_file_that_the_head_lacks_keeps_its_own_files(tmp_path: Path) -> None:
    for folder, names in (("base", "ab"), ("head", "ac")):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"bench_{name}.py").write_text(BENCHMARK)

    assert not replace_benchmarks(tmp_path / "base", tmp_path / "head")


# --- roofwatch ab and post


def ab(folder: Path, *arguments: str) -> Done:
    quick = ("--blocks", "3", "--budget", "0", "--preset", "survey", "--json")
    return roofwatch("ab", "bench_double.py", "--base", "HEAD~1", *quick, *arguments, cwd=folder)


def checked(folder: Path) -> dict[str, object]:
    """The check-run and the comment that `roofwatch post` would make."""
    done = roofwatch("post", "roofwatch-records", "--dry-run", "--json", cwd=folder)
    assert done.status == 0, done.error
    return {**done.parsed["check_run"], "comment": done.parsed["comment"]}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose first commit has no benchmark, and whose second adds one."""
    folder = make_repository(tmp_path / "repository")
    (folder / "ops.py").write_text(OPS)
    commit_file(folder, ".gitignore", "__pycache__\nroofwatch-records\n")
    commit_file(folder, "bench_double.py", BENCHMARK)
    return folder


@pytest.mark.slow
def test_the_change_that_adds_a_benchmark_is_measured_on_both_sides(repository: Path) -> None:
    done = ab(repository, "--affected")

    assert done.status in {0, 2}, done.error
    base, head = (RunRecord.read(repository / file) for file in done.parsed["records"])
    assert (
        [one.case_id for one in base.measurements]
        == [one.case_id for one in head.measurements]
        != []
    )
    assert not base.commit.is_dirty
    assert "missing at HEAD~1" in ab(repository, "--suite-from", "each").error


@pytest.mark.slow
def test_a_new_kernel_that_the_base_cannot_have_is_a_new_case(repository: Path) -> None:
    (repository / "ops.py").write_text(OPS + OPS.replace("twice", "again"))
    more = BENCHMARK.replace("double", "repeat").replace("twice", "again")
    commit_file(repository, "bench_double.py", BENCHMARK + more)

    done = ab(repository, "--affected", "--kernel", "repeat")

    assert "measured with its own benchmark file, not the head's: bench_double.py:" in done.error
    assert [one["reason"] for one in done.parsed["judgement"]["cases"]] == ["new_case"]


def test_a_head_that_cannot_be_loaded_fails_the_check_with_its_error(repository: Path) -> None:
    commit_file(repository, "ops.py", "import module_that_does_not_exist\n" + OPS)

    done = ab(repository, "--affected")

    assert done.status == 1
    assert "head: " in done.error
    found = checked(repository)
    assert found["conclusion"] == "failure"
    assert str(found["title"]).startswith("the head cannot be loaded: ")
    assert "No module named 'module_that_does_not_exist'" in str(found["comment"])
    assert str(repository) not in str(found["comment"])


def test_a_base_that_cannot_be_loaded_decides_nothing(repository: Path) -> None:
    commit_file(repository, "ops.py", "import module_that_does_not_exist\n" + OPS)
    still_broken = "import another_module_that_does_not_exist\n"
    commit_file(repository, "ops.py", still_broken + OPS)
    assert ab(repository).status == 2
    both_broken = checked(repository)
    commit_file(repository, "ops.py", OPS)
    assert ab(repository).status == 2

    for found in (both_broken, checked(repository)):
        assert (found["conclusion"], found["comment"]) == ("neutral", None)
        assert str(found["title"]).startswith("no result: the base cannot be loaded: ")


def test_a_change_that_touches_no_kernel_succeeds(repository: Path) -> None:
    commit_file(repository, "README.md", "Twice\n")

    done = ab(repository, "--affected")

    assert (done.status, done.parsed["records"]) == (0, []), done.error
    assert "nothing to measure: the work tree has the same source as HEAD~1" in done.error
    found = checked(repository)
    assert (found["conclusion"], found["title"]) == (
        "success",
        "no kernel touched: nothing to measure",
    )


def lazily_imported(kernel: str, module: str, function: str) -> str:
    """A benchmark as `roofwatch init` writes it: the kernel is imported when it is called."""
    text = benchmark(kernel, module=module, function=function)
    statement = f"from {module} import {function}\n"
    call = f"    return {function}(x)\n"
    return text.replace(statement, "").replace(call, f"    {statement}\n{call}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function"), [("again", "twice_again"), ("ops", "again")], ids=["module", "function"]
)
def test_a_lazily_imported_kernel_that_the_base_lacks_is_new_beside_the_others(
    repository: Path, module: str, function: str
) -> None:
    code = OPS.replace("twice", function)
    (repository / f"{module}.py").write_text(OPS + code if module == "ops" else code)
    more = lazily_imported("repeat", module, function).replace(
        "from roofwatch import KernelSpec, cases\n", ""
    )
    commit_file(repository, "bench_double.py", BENCHMARK + more)

    done = ab(repository)

    reasons = {
        case["subject"]["case_id"].partition("/")[0]: case["reason"]
        for case in done.parsed["judgement"]["cases"]
    }
    assert reasons["repeat"] == "new_case", done.error
    assert reasons["double"] != "not_comparable"
    base, _ = (RunRecord.read(repository / file) for file in done.parsed["records"])
    assert {one.case_id.partition("/")[0] for one in base.measurements} == {"double"}


@pytest.mark.slow
def test_a_kernel_that_the_base_cannot_import_is_fixed_by_the_head(repository: Path) -> None:
    (repository / "ops.py").write_text("import module_that_does_not_exist\n" + OPS)
    commit_file(repository, "bench_double.py", lazily_imported("double", "ops", "twice"))
    commit_file(repository, "ops.py", OPS)

    done = ab(repository)

    assert [case["reason"] for case in done.parsed["judgement"]["cases"]] == ["fixed"], done.error


def test_without_torch_the_title_names_the_way_out(repository: Path, tmp_path: Path) -> None:
    """As on a runner whose set-up does not install torch."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )

    done = started_roofwatch(
        "ab",
        "bench_double.py",
        "--base",
        "HEAD~1",
        cwd=repository,
        PYTHONPATH=str(tmp_path / "path"),
    )

    assert done.status == 2
    assert "Traceback" not in done.error
    found = checked(repository)
    assert str(found["title"]).startswith("no result: torch is not installed for ")
    assert "let the setup of the job install it (`pip install torch`" in str(found["title"])
    assert found["conclusion"] != "success"
