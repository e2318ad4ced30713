"""Whom the embedded server runs as: never root, whoever starts it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from roofwatch.db.engine import embedded
from roofwatch.db.engine.postgres import find_postgres
from tests.db.engine.embedded_server import answers, ask, kill_server, server_pid, using

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


ENTER = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup")


def test_a_process_that_got_a_dead_servers_id_is_not_stopped_in_its_place(folder: Path) -> None:
    same_user = NOBODY if os.geteuid() == 0 else ()
    bystander = subprocess.Popen([*same_user, "cat"], stdin=subprocess.PIPE)
    handle = embedded.start(folder)
    lines = (folder / "data" / "postmaster.pid").read_text().splitlines()
    kill_server(folder)
    while embedded._is_alive(folder):
        pass
    # as it would be found if the kernel had given the id out again
    (folder / "data" / "postmaster.pid").write_text("\n".join([str(bystander.pid), *lines[1:]]))

    handle.close()

    assert bystander.poll() is None
    bystander.communicate()


def test_folders_on_the_way_keep_their_modes(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = [path.stat() for path in (closed, *closed.parents)]

    with embedded.start(closed / "store") as server:
        assert ask(server.url, "SELECT 1") == 1

    after = [path.stat() for path in (closed, *closed.parents)]
    assert [(now.st_mode, now.st_uid) for now in after] == [(then.st_mode, then.st_uid) for then in before]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as somebody else")
def test_roots_server_is_not_root_and_can_at_most_pass_closed_folders(folder: Path) -> None:
    folder.parent.chmod(0o700)

    with embedded.start(folder):
        status = Path(f"/proc/{server_pid(folder)}/status").read_text().splitlines()

    fields = dict(line.split(":", 1) for line in status)
    assert set(fields["Uid"].split()) == {"65534"}
    dac_override = 1 << 1
    assert int(fields["CapEff"], 16) | dac_override == dac_override


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as somebody else")
def test_roots_server_finds_its_programs_below_a_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone in a folder of root's own, as mktemp -d makes them."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    installed = find_postgres(tmp_path, tmp_path / "data").programs.parent
    wheel, libraries = installed.parent, installed.parents[1] / f"{installed.parent.name}.libs"
    shutil.copytree(installed, closed / wheel.name / installed.name, symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setattr(
        "roofwatch.db.engine.postgres._find_programs", lambda: closed / wheel.name / installed.name / "bin"
    )

    with embedded.start(tmp_path / "store") as server:
        assert ask(server.url, "SELECT 1") == 1


def ordinary_user() -> Sequence[str]:
    """Command that runs Python as nobody; where Python is in a folder closed to nobody, with the right to enter it."""
    entered = subprocess.run([*NOBODY, "/bin/sh", "-c", '"$1" -c ""', "sh", sys.executable], capture_output=True)
    return NOBODY if entered.returncode == 0 else (*NOBODY, *ENTER)


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user: all other tests show it")
def test_an_ordinary_user_has_a_server_too() -> None:
    home = Path(tempfile.mkdtemp(prefix="roofwatch-test-"))
    try:
        os.chown(home, 65534, 65534)
        with using(home / "store", prefix=ordinary_user()) as user:
            url = user.url()
            assert ask(url, "SELECT 1") == 1
            # root comes along and leaves again
            with embedded.start(home / "store") as server:
                assert server.url == url
            assert user.end() == 0
        assert not answers(url)
        assert {path.stat().st_uid for path in (home / "store").iterdir()} == {65534}
    finally:
        shutil.rmtree(home)
