"""The folder of an embedded server: its name, what a creation or a server that died left there, and what is missing."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from roofwatch.db.engine import embedded
from roofwatch.db.errors import StoreError
from tests.db.engine.embedded_server import ask, server_pid, using


def test_a_process_id_left_behind_that_now_belongs_to_another_does_not_matter(folder: Path) -> None:
    ours = f"{os.getpid()}\n{folder / 'data'}\n1700000000\n5432\n\n127.0.0.1\n 1 1\nready\n"
    (folder / "data" / "postmaster.pid").write_text(ours)

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_creation_that_was_killed_is_begun_anew(new_folder: Path) -> None:
    with using(new_folder) as first:
        while not list(new_folder.glob("data.new.*")):
            assert first.process.poll() is None
        first.kill()

    with embedded.start(new_folder) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_what_a_killed_creation_left_is_cleared_away(new_folder: Path) -> None:
    leftover = new_folder / "data.new.left"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")
    (new_folder / "password").write_text("of the one before")

    with embedded.start(new_folder) as server:
        assert ask(server.url, "SELECT 1") == 1
    assert not leftover.exists()


@pytest.mark.parametrize("name", ["x" * 180, 'it\'s $HOME "quoted" `id` \\ %40 ü', "-l"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with embedded.start(tmp_path / name / "store") as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_folder_whose_name_is_no_text_has_a_server_that_others_find(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")

    with embedded.start(folder) as first, embedded.start(folder) as second:
        assert second.url == first.url


def test_a_folder_that_went_away_is_let_go_of(folder: Path) -> None:
    handle = embedded.start(folder)
    pid = server_pid(folder)
    shutil.rmtree(folder)

    handle.close()

    assert not folder.exists()
    os.kill(pid, signal.SIGQUIT)  # it runs on, and nobody else could stop it


def test_a_place_where_no_folder_can_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=f"{tmp_path}/file/store: Not a directory"):
        embedded.start(tmp_path / "file" / "store")


def test_a_lost_password_is_named_and_no_server_is_left_running(folder: Path) -> None:
    (folder / "password").rename(folder / "kept")

    with pytest.raises(StoreError, match=f"{folder}/password: the password .* is missing; put it back"):
        embedded.start(folder)

    assert not (folder / "data" / "postmaster.pid").exists()
    (folder / "kept").rename(folder / "password")


def test_a_wrong_password_is_told_at_once(folder: Path) -> None:
    right = (folder / "password").read_text()
    (folder / "password").write_text("guess")

    with pytest.raises(StoreError, match=r"cannot be used: .*password authentication failed"):
        embedded.start(folder)

    (folder / "password").write_text(right)


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("9\n")

    with pytest.raises(StoreError, match=f"{folder}: the embedded Postgres does not start: .*version 9"):
        embedded.start(folder)
