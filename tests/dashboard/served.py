"""The dashboard in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

ROOT = Path(__file__).parents[2]
_PROGRAM = (
    "import sys; from roofwatch.dashboard.serve import serve\n"
    "sys.exit(serve(port=int(sys.argv[1]) or None, on_ready=lambda address: print(address, "
    "flush=True)))"
)


@dataclass(frozen=True)
class Served:
    address: str
    process: subprocess.Popen[str]


@contextmanager
def serving(
    *,
    database_url: URL | None = None,
    data_dir: Path | None = None,
    cwd: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
) -> Iterator[Served]:
    """Serve until the block ends, on a free port unless one is given; yields once the address
    answers.
    """
    url = "" if database_url is None else database_url.render_as_string(hide_password=False)
    stored = {"ROOFWATCH_DATABASE_URL": url} if url else {"ROOFWATCH_DATA_DIR": str(data_dir)}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, str(port)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **stored, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, f"the server ended with status {process.wait()}"
            yield Served(address, process)
        finally:
            process.terminate()
