"""Which loaded files belong to the project, and from which of them a side is another commit's."""

import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roofwatch.collector.build.prepare import prepare_suite
from roofwatch.collector.build.provenance import ProjectFiles, Provenance, require_own_code
from roofwatch.model.provenance import ForeignCodeError, Origin
from roofwatch.model.suite_source import SuiteSource
from tests.git_repository import git
from tests.packaged import make_pure, write


@pytest.fixture(autouse=True)
def unchanged_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # torch cannot be loaded twice in one process, so it stays
    importlib.import_module("torch")
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in sys.modules.keys() - before:
        del sys.modules[name]


@pytest.fixture
def source(tmp_path: Path) -> SuiteSource:
    """The suite of a checkout beside the user's work tree."""
    repository = make_pure(tmp_path / "repository")
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "--quiet", "--detach", str(tree))
    return prepare_suite(tree / "bench", tree, repository)


def load(folder: Path, name: str, source: SuiteSource) -> dict[str, Origin]:
    """Import a module from a folder; return what is reported, by module."""
    files = ProjectFiles(source, list(sys.modules))
    sys.path.insert(0, os.fspath(folder))
    importlib.invalidate_caches()
    importlib.import_module(name)
    return {module.module: module.origin for module in files.take_new()}


def test_modules_of_the_tree_are_its_own(source: SuiteSource) -> None:
    assert source.tree is not None
    loaded = load(source.tree / "python", "qk", source)

    assert loaded == {"qk": Origin.TREE}


def test_modules_of_the_work_tree_are_foreign_to_another_commit(source: SuiteSource) -> None:
    assert source.work_tree is not None
    loaded = load(source.work_tree / "python", "qk", source)

    assert loaded == {"qk": Origin.WORK_TREE}


def test_a_module_that_the_tree_has_is_foreign_anywhere_else(
    source: SuiteSource, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    write(
        installed, {"qk/__init__.py": "from qk import ops, more", "qk/ops.py": "", "qk/more.py": ""}
    )

    loaded = load(installed, "qk", source)

    assert loaded == {"qk": Origin.INSTALLED, "qk.ops": Origin.INSTALLED}, "the tree has no qk.more"


def test_all_files_of_an_installed_distribution_of_the_tree_are_foreign(
    source: SuiteSource, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "site-packages"
    write(
        installed,
        {
            "qk_extra.py": "",
            "unrelated.py": "import qk_extra",
            "qk-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: QK\nVersion: 1.0\n",
            "qk-1.0.dist-info/RECORD": "qk_extra.py,,\n",
        },
    )
    sys.path.insert(0, os.fspath(installed))

    loaded = load(installed, "unrelated", source)

    assert loaded == {"qk_extra": Origin.INSTALLED}


def test_what_the_harness_needs_is_not_taken_for_a_folder_of_that_name(
    source: SuiteSource, tmp_path: Path
) -> None:
    assert source.tree is not None
    write(tmp_path, {"needed/triton_like/__init__.py": ""})
    sys.path.insert(0, os.fspath(tmp_path / "needed"))
    importlib.import_module("triton_like")
    write(source.tree, {"triton_like/__init__.py": "", "python/triton_like/__init__.py": ""})

    assert not ProjectFiles(replace(source, package_folders=()), list(sys.modules)).take_new()
    found = ProjectFiles(source, list(sys.modules)).take_new()
    assert [module.module for module in found] == ["triton_like"], "a distribution has it"


def test_files_of_imported_modules_are_reported_once(source: SuiteSource) -> None:
    assert source.tree is not None
    files = ProjectFiles(source, list(sys.modules))
    sys.path.insert(0, os.fspath(source.tree / "python"))
    importlib.import_module("qk.ops")

    assert files.take_new() != ()
    assert files.take_new() == ()


def test_files_are_digested_once(source: SuiteSource) -> None:
    assert source.tree is not None
    files = ProjectFiles(source, list(sys.modules))
    sys.path.insert(0, os.fspath(source.tree / "python"))
    importlib.import_module("qk.ops")
    modules = files.take_new()
    provenance = Provenance(source)

    assert [file.path for file in provenance.add(modules)] != []
    assert provenance.add(modules) == ()
    assert [file.path for file in provenance.listed] == [
        "python/qk/__init__.py",
        "python/qk/ops.py",
    ]
    assert all(file.sha256 for file in provenance.listed)
    require_own_code(source, modules)


def test_a_refusal_says_where_the_module_is_from_with_the_way_out(source: SuiteSource) -> None:
    assert source.work_tree is not None
    files = ProjectFiles(source, list(sys.modules))
    sys.path.insert(0, os.fspath(source.work_tree / "python"))
    importlib.import_module("qk")

    with pytest.raises(
        ForeignCodeError,
        match=r"qk was loaded from the work tree \(python/qk/__init__\.py\), not from this commit; "
        r".*\[build\] command that installs it into \{prefix\}",
    ):
        require_own_code(source, files.take_new())
