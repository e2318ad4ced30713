"""Releases of Triton are named by a version, a wheel or an environment."""

from importlib.metadata import version
from pathlib import Path

import pytest

from roofwatch.measurement.toolchains import find_toolchain
from roofwatch.model.errors import ToolchainError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFWATCH_CACHE_DIR", str(tmp_path / "cache"))


def test_the_running_release_needs_no_folder() -> None:
    assert find_toolchain(version("triton")).packages is None


def test_an_environment_gives_only_its_triton(tmp_path: Path) -> None:
    packages = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    (packages / "triton").mkdir(parents=True)
    (packages / "triton" / "__init__.py").touch()
    (packages / "torch").mkdir()

    toolchain = find_toolchain(str(tmp_path / "env"))

    assert toolchain.packages is not None
    assert [entry.name for entry in toolchain.packages.iterdir()] == ["triton"]


@pytest.mark.parametrize("text", ["3.7", "3.7.0+amd.rocm7.1", "pytorch-triton-rocm==0.0.1"])
def test_versions_of_vendors_reach_pip(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that does not exist refuses every version, so nothing is installed."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    with pytest.raises(ToolchainError, match="pip cannot install it"):
        find_toolchain(text)


@pytest.mark.parametrize("text", ["latest", "3.7.1 numpy", "-r requirements.txt", "no.whl"])
def test_nothing_else_reaches_pip(text: str) -> None:
    with pytest.raises(ToolchainError, match=r"neither a version|no such wheel"):
        find_toolchain(text)


def test_a_folder_without_triton_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="has no package triton"):
        find_toolchain(str(tmp_path))
