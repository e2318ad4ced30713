"""Folders for embedded servers."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofwatch.db.engine import embedded
from roofwatch.db.errors import StoreError


@pytest.fixture(scope="session")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a server was created and stopped."""
    folder = tmp_path_factory.mktemp("created") / "store"
    embedded.start(folder).close()
    return folder


@pytest.fixture
def new_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server, which is stopped after the test."""
    yield tmp_path / "store"
    if (tmp_path / "store" / "data").exists():
        with contextlib.suppress(StoreError):
            embedded.start(tmp_path / "store").close()


@pytest.fixture
def folder(new_folder: Path, created: Path) -> Path:
    """A folder with a created server."""
    subprocess.run(["cp", "-a", str(created), str(new_folder)], check=True)
    return new_folder
