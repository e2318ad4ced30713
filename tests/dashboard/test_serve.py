import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from sqlalchemy import URL

from roofwatch.dashboard.errors import DashboardError
from roofwatch.dashboard.serve import serve
from roofwatch.db.engine import embedded
from tests.dashboard.served import ROOT, serving

TIMEOUT_S = 30


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def status_of(address: str) -> int:
    with urlopen(address) as answer:  # noqa: S310 (our own http address)
        return int(answer.status)


def page_at(address: str) -> str:
    with urlopen(address) as answer:  # noqa: S310 (our own http address)
        return str(answer.read().decode())


def text_of(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def test_serving_loads_streamlit_only_in_the_process_of_the_server() -> None:
    program = "import sys, roofwatch.dashboard.serve; sys.exit('streamlit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_the_address_answers_when_it_is_told(database_url: URL) -> None:
    with serving(database_url=text_of(database_url)) as served:
        assert served.address.startswith("http://127.0.0.1:")
        assert status_of(served.address) == 200
        assert "streamlit" in page_at(f"{served.address}/run?project=any").lower()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_is_no_failure(database_url: URL, number: signal.Signals) -> None:
    with serving(database_url=text_of(database_url)) as served:
        (child,) = children_of(served.process.pid)
        served.process.send_signal(number)
        assert served.process.wait(TIMEOUT_S) == 0
        assert not child.is_running()


def test_the_embedded_database_is_stopped_when_the_server_that_opened_it_is_told_to_end(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with serving(data_dir=folder) as served:
        (child,) = children_of(served.process.pid)
        while not (folder / "alive").exists():
            assert child.is_running()

    assert served.process.returncode == 0
    assert not embedded._is_alive(folder)


LET_GO_IN_VAIN = """
import os, signal
from roofwatch.dashboard.server_process import let_go_when_asked_to_end
from roofwatch.db.errors import StoreError
from roofwatch.db.engine import embedded

def fail():
    raise StoreError("another process is at it")

embedded.close_all = fail
let_go_when_asked_to_end()
os.kill(os.getpid(), signal.SIGTERM)
os._exit(3)
"""


def test_a_server_that_cannot_let_go_of_the_embedded_database_ends_all_the_same() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LET_GO_IN_VAIN], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert ended.returncode == -signal.SIGTERM
    assert "was not let go of" in ended.stderr
    assert "another process is at it" in ended.stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux tells a child that its parent died")
def test_the_server_ends_with_a_parent_that_is_killed(database_url: URL) -> None:
    with serving(database_url=text_of(database_url)) as served:
        (child,) = children_of(served.process.pid)
        served.process.kill()
        child.wait(TIMEOUT_S)
        assert not child.is_running()


@pytest.mark.slow
def test_serving_writes_nothing_into_the_home_folder(database_url: URL, tmp_path: Path) -> None:
    with serving(database_url=text_of(database_url), environment={"HOME": str(tmp_path)}) as served:
        assert status_of(served.address) == 200
    assert list(tmp_path.iterdir()) == []


def test_packages_of_the_folder_it_is_started_in_do_not_get_in_the_way(database_url: URL, tmp_path: Path) -> None:
    for name in ("db", "ci", "dashboard", "streamlit"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not the one you want')")
    with serving(database_url=text_of(database_url), cwd=tmp_path) as served:
        assert status_of(served.address) == 200


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DashboardError, match=f"127.0.0.1:{port}.*--port"):
            serve(port=port, database_url=None, data_dir=None, on_ready=print)


def test_an_address_that_is_not_of_this_machine_is_named() -> None:
    with pytest.raises(DashboardError, match=r"192\.0\.2\.1: .*--address"):
        serve(port=None, database_url=None, data_dir=None, on_ready=print, address="192.0.2.1")
