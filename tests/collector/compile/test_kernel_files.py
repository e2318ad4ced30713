"""The package of a kernel is named, as another release may hide the one that is meant."""

import sys
from pathlib import Path

import pytest

from roofwatch.collector.compile.kernel_files import packages_of

NAME = "planted_kernels"


def plant(folder: Path, *, is_package: bool) -> Path:
    package = folder / NAME
    package.mkdir(parents=True)
    (package / "ops.py").touch()
    if is_package:
        (package / "__init__.py").touch()
    return package


@pytest.fixture
def two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A release without `__init__.py`, and an installed one, which Python prefers."""
    release, installed = tmp_path / "release", tmp_path / "installed"
    plant(release, is_package=False)
    plant(installed, is_package=True)
    information = installed / f"{NAME}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {NAME}\nVersion: 1.2\n")
    (information / "RECORD").write_text(f"{NAME}/ops.py,,\n")
    for folder in (installed, release):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return release, installed


def test_a_version_is_named_with_what_it_hides(two_folders: tuple[Path, Path]) -> None:
    release, installed = two_folders
    __import__(f"{NAME}.ops")

    (package,) = packages_of([f"{NAME}.ops", "bench_file"])

    assert (package.name, package.version) == (NAME, "1.2")
    assert package.folder == str(installed / NAME)
    assert package.warning is not None
    assert str(release / NAME) in package.warning
    assert "no __init__.py" in package.warning
