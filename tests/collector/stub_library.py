"""Libraries of a driver that is not there, built from C."""

import shutil
import subprocess
from pathlib import Path

import pytest


def build_stub(source: str, library: Path, *options: str) -> Path:
    """Compile a file of this folder; skip the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(f"no C compiler for {source}")
    library.parent.mkdir(parents=True, exist_ok=True)
    path = Path(__file__).with_name(source)
    command = [compiler, *options, "-shared", "-fPIC", "-o", str(library), str(path)]
    subprocess.run(command, check=True)
    return library
