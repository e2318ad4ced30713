import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from sqlalchemy import URL

from roofwatch.dashboard.access import DashboardError
from roofwatch.dashboard.serve import serve
from roofwatch.db.engine import embedded
from tests.dashboard.served import ROOT, serving

TIMEOUT_S = 30


def status_of(address: str) -> int:
    with urlopen(address) as answer:  # noqa: S310 (our own http address)
        return int(answer.status)


def assert_protected(address: str) -> None:
    """No other site may frame or script a page, and Streamlit's metrics are not served."""
    for path in ("", "/_stcore/health", "/static/nothing.js"):
        try:
            with urlopen(address + path) as answer:  # noqa: S310 (our own http address)
                headers = answer.headers
        except HTTPError as error:
            headers = error.headers
        assert headers["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    with pytest.raises(HTTPError, match="404"):
        status_of(f"{address}/_stcore/metrics")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_printed_address_answers_until_sigterm(
    database_url: URL, number: signal.Signals
) -> None:
    with serving(database_url=database_url) as served:
        assert served.address.startswith("http://127.0.0.1:")
        assert status_of(served.address) == 200
        assert status_of(f"{served.address}/run?project=any") == 200
        assert_protected(served.address)
        served.process.send_signal(number)
        assert served.process.wait(TIMEOUT_S) == 0


@pytest.mark.slow
def test_sigterm_stops_the_embedded_database(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-P", "-m", "roofwatch", "dashboard"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROOFWATCH_DATA_DIR": str(folder)}
    environment.pop("ROOFWATCH_DATABASE_URL", None)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while "dashboard: http" not in process.stdout.readline():
            assert process.poll() is None
        assert embedded._is_alive(folder)
        process.terminate()

    assert process.returncode == 0
    assert not embedded._is_alive(folder)


def test_serving_uses_neither_the_working_directory_nor_the_home_folder(
    database_url: URL, tmp_path: Path
) -> None:
    home, cwd = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    for name in ("db", "ci", "dashboard", "streamlit"):
        (cwd / name).mkdir(parents=True)
        (cwd / name / "__init__.py").write_text("raise ImportError('not the one you want')")
    with serving(database_url=database_url, cwd=cwd, environment={"HOME": str(home)}) as served:
        assert status_of(served.address) == 200
    assert list(home.iterdir()) == []


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DashboardError, match=f"127.0.0.1:{port}.*--port"):
            serve(port=port, on_ready=print)


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(DashboardError, match=r"192\.0\.2\.1: .*--address"):
        serve(port=None, on_ready=print, address="192.0.2.1")
