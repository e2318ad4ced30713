"""Builds of revisions: real pip and compilers, in repositories of their own."""

import os
import threading
import time
from pathlib import Path

import pytest

from roofwatch.collector.build import build_cache
from roofwatch.collector.build.build_cache import builds_dir, cached_build, shrink
from roofwatch.collector.build.files import building_copy
from roofwatch.collector.build.prepare import prepare_suite
from roofwatch.collector.build.revision import suite_at_revision
from roofwatch.collector.git import find_repository
from roofwatch.model.errors import BuildError, SuiteError
from tests.git_repository import commit_all, git, make_repository
from tests.packaged import make_compiled, write

COPY = "mkdir -p {prefix}/qk && cp -r {source}/code/. {prefix}/qk && echo built >> {log}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFWATCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "builds"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose own command builds it, and which counts its builds in a file."""
    folder = tmp_path / "repository"
    command = COPY.replace("{log}", str(tmp_path / "log"))
    write(
        folder,
        {
            "roofwatch.toml": f'[build]\ncommand = "{command}"\n',
            "code/__init__.py": "VALUE = 1\n",
            "bench_qk.py": "import qk\n",
            "README.md": "One\n",
        },
    )
    commit_all(make_repository(folder))
    return folder


def build_count(repository: Path) -> int:
    log = repository.parent / "log"
    return log.read_text().count("built") if log.exists() else 0


def build(repository: Path) -> Path:
    (folder,) = prepare_suite(repository / "bench_qk.py", repository).builds
    return folder


def test_the_prefix_of_a_build_comes_first_on_the_path(repository: Path) -> None:
    source = prepare_suite(repository / "bench_qk.py", repository)

    assert source.import_roots[0] == source.builds[0]
    assert (source.builds[0] / "qk" / "__init__.py").read_text() == "VALUE = 1\n"


def test_a_command_builds_in_a_copy(repository: Path) -> None:
    prepare_suite(repository / "bench_qk.py", repository)
    assert git(repository, "status", "--porcelain") == "", "nothing is written to the work tree"
    assert git(repository, "worktree", "list").count("\n") == 0, "the copy is gone"


def test_equal_code_is_built_once(repository: Path) -> None:
    first = build(repository)
    (repository / "README.md").write_text("Two\n")
    (repository / "bench_qk.py").write_text("import qk  # again\n")
    assert (build(repository), build_count(repository)) == (first, 1)


def test_changed_code_is_built_again(repository: Path) -> None:
    build(repository)
    (repository / "code" / "__init__.py").write_text("VALUE = 2\n")
    assert (build(repository) / "qk" / "__init__.py").read_text() == "VALUE = 2\n"
    commit_all(repository)
    (repository / "code" / "new.py").write_text("")
    assert (build(repository) / "qk" / "new.py").exists()
    assert build_count(repository) == 3


def test_inputs_name_what_a_build_depends_on(repository: Path) -> None:
    settings = (repository / "roofwatch.toml").read_text()
    (repository / "roofwatch.toml").write_text(f'{settings}inputs = ["code/**"]\n')
    first = build(repository)
    (repository / "other.py").write_text("")
    assert build(repository) == first
    (repository / "code" / "__init__.py").write_text("VALUE = 3\n")
    assert build(repository) != first


def test_the_configuration_of_the_tree_comes_before_that_of_the_work_tree(
    repository: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "--quiet", "--detach", str(other))
    (other / "roofwatch.toml").unlink()
    write(repository, {"roofwatch.toml": '[build]\ncommand = "cp -r {source}/code {prefix}/new"\n'})

    source = prepare_suite(other / "bench_qk.py", other, repository)

    assert (source.builds[0] / "new" / "__init__.py").exists(), "the head's, for it has none"
    git(other, "checkout", "--quiet", ".")
    source = prepare_suite(other / "bench_qk.py", other, repository)
    assert (source.builds[0] / "qk" / "__init__.py").exists()


@pytest.fixture
def failing(repository: Path) -> Path:
    """The repository with a build command that writes half of its files."""
    command = "echo no compiler here; touch {prefix}/half; exit 3"
    write(repository, {"roofwatch.toml": f"[build]\ncommand = '{command}'\n"})
    return repository


def test_a_failed_build_is_reported_by_its_last_lines(failing: Path) -> None:

    with pytest.raises(BuildError, match=r"exit status 3; last lines of the build:\nno compiler"):
        build(failing)


def test_a_failed_build_leaves_nothing_in_the_cache(failing: Path, cache: Path) -> None:
    with pytest.raises(BuildError):
        build(failing)

    assert [entry.name for entry in cache.iterdir() if not entry.name.endswith(".lock")] == []


def test_a_command_that_installs_nothing_is_refused(repository: Path) -> None:
    write(repository, {"roofwatch.toml": '[build]\ncommand = "true"\n'})
    with pytest.raises(BuildError, match=r"put nothing into \{prefix\}"):
        build(repository)


def test_an_unknown_setting_is_refused(repository: Path) -> None:
    write(repository, {"roofwatch.toml": '[build]\ncomand = "true"\n'})
    with pytest.raises(SuiteError, match=r"\[build\] comand"):
        build(repository)


def test_two_that_want_one_build_make_it_once() -> None:
    made: list[Path] = []
    begun = threading.Barrier(2)

    def build(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("whole")

    def ask() -> None:
        begun.wait()
        assert (cached_build("key", build) / "file").read_text() == "whole"

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


def test_the_cache_is_shrunk_to_its_limit_without_what_is_in_use() -> None:
    def build(folder: Path) -> None:
        (folder / "file").write_bytes(b"x" * 1_000)

    used = cached_build("used", build)
    old = cached_build("old", build)
    build_cache._held.pop(old).close()
    new = cached_build("new", build)
    build_cache._held.pop(new).close()
    left = builds_dir() / ".unfinished-1"
    left.mkdir()
    for place, age_s in ((used, 3_000), (old, 2_000), (new, 1_000), (left, 1e6)):
        at = time.time() - age_s
        os.utime(place, (at, at))

    shrink(max_bytes=1_500)

    assert (used.exists(), old.exists(), new.exists(), left.exists()) == (True, False, True, False)


@pytest.mark.slow
def test_a_c_extension_that_pip_installs_covers_the_package_in_the_tree(tmp_path: Path) -> None:
    repository = make_compiled(tmp_path / "repository", root=".")

    source = prepare_suite(repository / "bench_qk.py", find_repository(repository))

    (folder,) = source.builds
    assert list((folder / "qk").glob("_native*.so"))
    assert source.import_roots[0] == folder
    assert git(repository, "status", "--porcelain") == ""


def test_an_error_of_a_c_compiler_names_the_file(tmp_path: Path) -> None:
    repository = make_compiled(tmp_path / "repository", root=".")
    write(repository, {"csrc/native.c": "not C\n"})
    with pytest.raises(BuildError, match="error") as failure:
        prepare_suite(repository / "bench_qk.py", repository)
    assert "native.c" in str(failure.value)


def test_submodules_of_a_commit_come_from_the_clones_of_the_work_tree(
    repository: Path, tmp_path: Path
) -> None:
    library = make_repository(tmp_path / "library")
    write(library, {"include/lib.h": "// one\n"})
    first = commit_all(library)
    write(library, {"include/lib.h": "// two\n"})
    commit_all(library)
    allowed = ("-c", "protocol.file.allow=always")
    git(repository, *allowed, "submodule", "add", "--quiet", str(library), "third_party/library")
    commit_all(repository, "Newer")
    git(repository / "third_party" / "library", "checkout", "--quiet", first)
    commit_all(repository, "Older")
    git(repository / "third_party" / "library", "checkout", "--quiet", "main")
    header = Path("third_party", "library", "include", "lib.h")

    for revision, text in (("HEAD~1", "// two\n"), ("HEAD", "// one\n")):
        with suite_at_revision(repository / "bench_qk.py", revision) as suite:
            assert suite.source.tree is not None
            assert (suite.source.tree / header).read_text() == text
    with building_copy(repository) as copy:
        assert (copy / header).read_text() == "// two\n", "as it is in the work tree"
