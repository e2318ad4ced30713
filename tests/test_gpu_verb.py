"""`make test-gpu` collects its tests with only the core installed."""

import subprocess
import sys
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
