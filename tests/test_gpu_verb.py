"""`make test-gpu` and `make gpu-evidence` where only Python, torch and what was brought along are
installed.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import pytest

sys.exit(pytest.main(["-m", "gpu", "-o", "addopts=", "--collect-only", "-q", "-p", "no:cacheprovider"]))
"""
MISSING = (
    "pandas",
    "scipy",
    "sqlalchemy",
    "psycopg",
    "alembic",
    "fastapi",
    "streamlit",
    "plotly",
    "ray",
    "mcp",
    "hypothesis",
    "playwright",
    "schemathesis",
    "httpx",
    "httpx",
    "apprise",
    "authlib",
    "pydantic_settings",
)


@pytest.mark.slow
def test_gpu_tests_are_collected_with_only_the_core_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, ",".join(MISSING)],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    assert "tests/collector/timing/test_gpu_timers.py::" in done.stdout
    assert "tests/kernels/test_suite.py::" in done.stdout


WHEEL = {
    "brought_along/__init__.py": "",
    "brought_along/part.py": "NAME = 'the whole package'",
    "brought_along-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: brought-along\nVersion: 1.0\n",
    "brought_along-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "brought_along-1.0.dist-info/RECORD": "",
}
USES_IT = """
import pytest
from brought_along.part import NAME

@pytest.mark.gpu
def test_it():
    print("used:", NAME)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A copy of the repository with a bundle of packages, as it comes to a machine with a GPU."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    bundle = tmp_path / "build" / "gpu-bundle"
    bundle.mkdir(parents=True)
    with zipfile.ZipFile(bundle / "brought_along-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in WHEEL.items():
            wheel.writestr(name, text)
    evidence = tmp_path / "bench" / "gpu_evidence.py"
    evidence.parent.mkdir()
    evidence.write_text("from brought_along.part import NAME\nprint('used:', NAME)\n")
    (tmp_path / "test_uses_it.py").write_text(USES_IT)
    return tmp_path


def make(verb: str, folder: Path) -> str:
    done = subprocess.run(
        ["make", verb, f"PYTHON={sys.executable}"],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-s",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["gpu-evidence", "test-gpu"])
def test_packages_are_installed_again_after_an_installation_that_was_interrupted(
    verb: str, machine: Path
) -> None:
    half_installed = machine / "build" / "gpu-site.part" / "brought_along"
    half_installed.mkdir(parents=True)
    (half_installed / "__init__.py").touch()

    first = make(verb, machine)
    second = make(verb, machine)

    assert "used: the whole package" in first
    assert "used: the whole package" in second
    assert not half_installed.exists()
