"""The servers that tests fork from, on a machine whose packages are on PYTHONPATH only."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.preloaded.client import _start


def test_a_server_has_the_packages_that_are_on_pythonpath_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    theirs, ours = os.pipe()

    server = _start("compiling", tmp_path / "socket", theirs)
    os.close(theirs)
    os.close(ours)  # ends the server, which loads at the first request only
    end_of_server(server)

    assert marker.exists()


def end_of_server(server: subprocess.Popen[bytes]) -> None:
    assert server.wait(120) == 0
