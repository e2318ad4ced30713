"""The wheel installs one package, and its commands work from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from roofwatch import __version__
from roofwatch.install import INSTALL_ROOT
from tests.builders import make_record

pytestmark = pytest.mark.slow
FOLDERS = ("api", "ci", "collector", "dashboard", "db", "kernels", "tests")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip would into site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    subprocess.run(["git", "clone", "--quiet", str(INSTALL_ROOT), str(source)], check=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(folder),
            str(source),
        ],
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder / "site-packages")
    return folder / "site-packages"


def test_the_wheel_puts_one_package_into_site_packages_with_its_version(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    assert f"\nVersion: {__version__}\n" in metadata.read_text()
    (package,) = (
        entry.name for entry in installed.iterdir() if not entry.name.endswith(".dist-info")
    )
    assert package == "roofwatch"
    for needed in (
        "db/migrations/env.py",
        "db/migrations/versions/r0010_initial.sql",
        "kernels/registry.py",
        "templates/AGENTS.md",
        "py.typed",
    ):
        assert (installed / package / needed).is_file(), needed
    assert list((installed / package / "kernels").rglob("*.cu"))


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("run", "{suite}", "--output", "{folder}/run.json", "--no-static"), 0),
        (("compare", "{folder}/record.json", "{folder}/record.json"), 2),
        (("ingest", "{folder}/record.json"), 0),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_commands_work_next_to_packages_with_the_same_names(
    installed: Path, tmp_path: Path, command: tuple[str, ...], status: int
) -> None:
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the user\\'s own')\n")
    make_record().write(tmp_path / "record.json")
    values = {"folder": tmp_path, "suite": INSTALL_ROOT / "tests" / "suites" / "bench_good.py"}
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(installed)]),
        "ROOFWATCH_DATA_DIR": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "roofwatch", *(word.format(**values) for word in command)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "the user's own" not in done.stderr


@pytest.mark.parametrize("command", ["compare", "post --help"])
def test_the_core_runs_without_torch(installed: Path, tmp_path: Path, command: str) -> None:
    for name in ("torch", "triton", "pynvml"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError({name!r})\n")
    record = tmp_path / "record.json"
    make_record().write(record)
    arguments = [record, record] if command == "compare" else []
    done = subprocess.run(
        [sys.executable, "-m", "roofwatch", *command.split(), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(installed)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2)
    assert "Error" not in done.stderr
