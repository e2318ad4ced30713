"""The uses of one embedded server: real processes that share it, end, fork, and are killed."""

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from roofwatch.db.engine import embedded
from roofwatch.db.errors import StoreError
from tests.db.engine.embedded_server import USE, answers, ask, kill_server, server_pid, using

# ends while a thread of it, which its end does not wait for, starts a server
END_AMID_A_START = """
import sys, threading
from pathlib import Path
from roofwatch.db.engine.embedded import start
folder = Path(sys.argv[1])
threading.Thread(target=start, args=(folder,), daemon=True).start()
while not (folder / "alive").exists():
    pass
"""


def test_two_uses_in_one_process_share_the_server(folder: Path) -> None:
    first = embedded.start(folder)
    second = embedded.start(folder)
    assert second.url == first.url

    first.close()
    first.close()
    assert ask(second.url, "SELECT 1") == 1

    second.close()
    assert not answers(second.url)


def test_two_processes_share_the_server_and_the_last_one_stops_it(folder: Path) -> None:
    with using(folder) as other:
        url = other.url()
        with embedded.start(folder) as server:
            assert server.url == url
        assert ask(url, "SELECT 1") == 1

        assert other.end() == 0
    assert not answers(url)


@pytest.mark.slow
def test_processes_that_start_at_once_start_one_server(new_folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        users = [stack.enter_context(using(new_folder)) for _ in range(4)]
        urls = {user.url() for user in users}
        assert len(urls) == 1
        assert [user.end() for user in users] == [0] * 4
    assert not answers(urls.pop())


def test_a_server_whose_user_was_killed_is_found_and_stopped_in_the_end(folder: Path) -> None:
    with using(folder) as owner:
        url = owner.url()
        ask(url, "CREATE TABLE kept AS SELECT 7 AS value")
        owner.kill()
    assert answers(url)

    with embedded.start(folder) as server:
        assert server.url == url
        assert ask(server.url, "SELECT value FROM kept") == 7
    assert not answers(url)


def test_a_process_that_ends_while_a_thread_starts_the_server_leaves_none(folder: Path) -> None:
    # the creation of the server that lies there has left one
    (folder / "alive").unlink()
    with using(folder, program=END_AMID_A_START) as user:
        assert user.end() == 0

    assert not embedded._is_alive(folder)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT], ids=["killed", "ends by itself"])
def test_a_server_that_is_lost_is_started_again_with_all_that_was_committed(folder: Path, how: signal.Signals) -> None:
    with using(folder) as owner:
        url = owner.url()
        ask(url, "CREATE TABLE kept AS SELECT 7 AS value")
        os.kill(server_pid(folder), how)

        with embedded.start(folder) as server:
            # where the owner looks for it
            assert server.url == url
            assert owner.end() == 0
            assert ask(server.url, "SELECT value FROM kept") == 7


def test_killing_the_server_and_its_user_together_is_survived(folder: Path) -> None:
    with using(folder) as owner:
        ask(owner.url(), "CREATE TABLE kept AS SELECT 7 AS value")
        kill_server(folder)
        owner.kill()

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT value FROM kept") == 7


FORK = """
import os, sys
from pathlib import Path
from roofwatch.db.engine.embedded import start
server = start(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    sys.exit()  # with all that is done at exit
os.waitpid(child, 0)
waiting = os.fork()
if waiting == 0:
    sys.stdin.read()
    os._exit(0)
print(server.url.render_as_string(hide_password=False), flush=True)
sys.stdin.read()
"""


def test_a_forked_child_neither_stops_nor_holds_the_server(folder: Path) -> None:
    with using(folder, program=FORK) as parent:
        url = parent.url()
        assert ask(url, "SELECT 1") == 1

        parent.process.kill()
        parent.process.wait(timeout=120)
        with embedded.start(folder) as server:
            assert server.url == url
        # the child lives on, since its input is still open
        assert not answers(url)


def test_a_use_that_cannot_be_ended_in_order_holds_neither_the_server_nor_other_uses(
    new_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [new_folder, tmp_path / "other"]
    uses = {embedded.start(folder) for folder in folders}
    leave = embedded._leave

    def fail_at_first(*use: Any) -> None:
        monkeypatch.setattr(embedded, "_leave", leave)
        raise StoreError("another process is at it")

    with monkeypatch.context() as patch:
        patch.setattr(embedded, "_in_use", uses)
        patch.setattr(embedded, "_changing", threading.RLock())  # which is never given back
        monkeypatch.setattr(embedded, "_leave", fail_at_first)
        with pytest.raises(StoreError, match="another process is at it"):
            embedded.close_all()

    assert [embedded._is_alive(folder) for folder in folders].count(True) == 1
    for folder in folders:
        embedded.start(folder).close()  # the last one to leave
        assert not embedded._is_alive(folder)


def test_a_process_that_just_ends_lets_go_of_the_server(folder: Path) -> None:
    program = USE.replace("with start(Path(sys.argv[1])) as server:", "server = start(Path(sys.argv[1]))\nif True:")
    with using(folder, program=program) as user:
        url = user.url()
        assert user.end() == 0
    assert not answers(url)
