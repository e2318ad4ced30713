"""The embedded server, with real processes that share it, end, and are killed."""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import PGconn, Ping
from sqlalchemy import URL, create_engine, make_url, text

from db.errors import StoreError
from db.server import embedded, postgres
from db.server.postgres import find_postgres

REPOSITORY = Path(__file__).parents[3]
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
ENTER = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup")

# starts using a server, tells its URL, and stops using it when its input ends
USE = """
import sys
from pathlib import Path
from db.server.embedded import start
with start(Path(sys.argv[1])) as server:
    print(server.url.render_as_string(hide_password=False), flush=True)
    sys.stdin.read()
"""

# ends while a thread of it, which its end does not wait for, starts a server
END_AMID_A_START = """
import sys, threading
from pathlib import Path
from db.server.embedded import start
folder = Path(sys.argv[1])
threading.Thread(target=start, args=(folder,), daemon=True).start()
while not (folder / "alive").exists():
    pass
"""


class User:
    """Another process that uses the server of a folder."""

    def __init__(self, folder: Path, *, program: str = USE, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", program, str(folder)],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def url(self) -> URL:
        return make_url(self.told())

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=120)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=120)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def using(folder: Path, *, program: str = USE, prefix: Sequence[str] = ()) -> Iterator[User]:
    user = User(folder, program=program, prefix=prefix)
    try:
        yield user
    finally:
        user.kill()


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a server was created and stopped."""
    folder = tmp_path_factory.mktemp("created") / "store"
    embedded.start(folder).close()
    return folder


@pytest.fixture
def new_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server, which is stopped in the end whoever has left it running."""
    yield tmp_path / "store"
    if (tmp_path / "store" / "data").exists():
        with contextlib.suppress(StoreError):
            embedded.start(tmp_path / "store").close()


@pytest.fixture
def folder(new_folder: Path, created: Path) -> Path:
    """The same with a server that has been created."""
    subprocess.run(["cp", "-a", str(created), str(new_folder)], check=True)
    return new_folder


def ask(url: URL, query: str) -> object:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(query))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def answers(url: URL) -> bool:
    return PGconn.ping(f"host={url.host} port={url.port}".encode()) == Ping.OK


def server_pid(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])


def kill_server(folder: Path) -> None:
    os.kill(server_pid(folder), signal.SIGKILL)


def test_a_server_starts_answers_and_is_stopped_by_its_last_user(new_folder: Path) -> None:
    with embedded.start(new_folder) as server:
        assert ask(server.url, "SELECT 40 + 2") == 42

    assert not answers(server.url)
    assert not (new_folder / "data" / "postmaster.pid").exists()


def test_what_was_written_is_there_at_the_next_start(folder: Path) -> None:
    with embedded.start(folder) as server:
        ask(server.url, "CREATE TABLE kept AS SELECT 7 AS value")

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT value FROM kept") == 7


def test_the_server_is_durable_and_listens_on_the_loopback_alone(folder: Path) -> None:
    settings = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "50",
        "jit": "off",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
    }

    with embedded.start(folder) as server:
        assert {name: ask(server.url, f"SHOW {name}") for name in settings} == settings


def test_the_password_is_needed_and_not_shown(new_folder: Path) -> None:
    with embedded.start(new_folder) as server:
        password = (new_folder / "password").read_text()
        assert password not in f"{server.url} {server.url!r}"
        assert stat.S_IMODE((new_folder / "password").stat().st_mode) == 0o600
        assert stat.S_IMODE((new_folder / "data").stat().st_mode) == 0o700
        for wrong in (None, "", "guess"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(host=server.url.host, port=server.url.port, user="postgres", password=wrong)


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


def test_a_process_id_left_behind_that_now_belongs_to_another_does_not_matter(folder: Path) -> None:
    ours = f"{os.getpid()}\n{folder / 'data'}\n1700000000\n5432\n\n127.0.0.1\n 1 1\nready\n"
    (folder / "data" / "postmaster.pid").write_text(ours)

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT 1") == 1


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


def test_a_port_is_none_that_the_system_gives_to_whoever_asks_for_any() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 10_000 <= embedded._free_port() < first


def test_a_port_is_found_where_all_are_given_to_whoever_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(embedded, "_GIVEN_PORTS", tmp_path / "range")
    assert embedded._free_port() > 0


def test_a_port_that_is_taken_meanwhile_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        find, running = embedded._free_port, embedded._running_port
        free, of_the_last_one = ([taken.getsockname()[1]] for _ in range(2))
        monkeypatch.setattr(embedded, "_free_port", lambda: free.pop() if free else find())
        monkeypatch.setattr(
            embedded, "_running_port", lambda folder: of_the_last_one.pop() if of_the_last_one else running(folder)
        )

        with embedded.start(folder) as server:
            assert ask(server.url, "SELECT 1") == 1
            assert server.url.port != taken.getsockname()[1]
            assert (free, of_the_last_one) == ([], [])


@pytest.mark.parametrize("name", ["x" * 180, 'it\'s $HOME "quoted" `id` \\ %40 ü', "-l"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with embedded.start(tmp_path / name / "store") as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_users_settings_for_another_postgres_are_not_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PGDATA": "/nowhere",
        "PGHOST": "192.0.2.1",
        "PGHOSTADDR": "192.0.2.1",
        "PGPORT": "1",
        "PGUSER": "somebody",
        "PGPASSWORD": "wrong",
        "PGDATABASE": "other",
        "PGSSLMODE": "require",
        "PGOPTIONS": "-c no_such_setting=1",
    }.items():
        monkeypatch.setenv(name, value)

    with embedded.start(folder) as server:
        assert ask(server.url, "SELECT current_database()") == "postgres"


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
    monkeypatch.setattr("db.server.postgres._find_programs", lambda: closed / wheel.name / installed.name / "bin")

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


FORK = """
import os, sys
from pathlib import Path
from db.server.embedded import start
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


def test_a_process_that_just_ends_lets_go_of_the_server(folder: Path) -> None:
    program = USE.replace("with start(Path(sys.argv[1])) as server:", "server = start(Path(sys.argv[1]))\nif True:")
    with using(folder, program=program) as user:
        url = user.url()
        assert user.end() == 0
    assert not answers(url)


def test_the_server_holds_no_lock_but_its_own(folder: Path) -> None:
    with embedded.start(folder):
        opened = {str(entry.readlink()) for entry in Path(f"/proc/{server_pid(folder)}/fd").iterdir()}

    in_folder = {Path(path).name for path in opened if Path(path).parent == folder}
    assert in_folder == {"alive"}


def test_a_folder_that_went_away_is_let_go_of(folder: Path) -> None:
    handle = embedded.start(folder)
    pid = server_pid(folder)
    shutil.rmtree(folder)

    handle.close()

    os.kill(pid, signal.SIGQUIT)


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


def test_a_missing_wheel_is_named_with_both_ways_out(new_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_WHEEL", "no_such_wheel")

    with pytest.raises(StoreError, match=r"ROOFWATCH_DATABASE_URL .*pip install"):
        embedded.start(new_folder)
