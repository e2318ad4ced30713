"""Tokens and trusted repositories, for the command line."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from rich.table import Table
from sqlalchemy import Engine

from roofwatch.db.auth.tokens import create_token
from roofwatch.db.auth.values import NewToken, Scope, Token, TrustedRepository
from roofwatch.db.errors import StoreError
from roofwatch.terminal import printable

ACTOR = "command line"

_PROJECT = re.compile(r"[\w.][\w./-]{0,199}")


def check_project(project: str) -> None:
    """Raise StoreError where no record can be of a project with such a name."""
    if not _PROJECT.fullmatch(project):
        raise StoreError(f"project {project!r}: a name has letters, digits, _ . / and -, 200 at most")


def create_project_token(
    engine: Engine,
    *,
    name: str,
    project: str | None,
    all_projects: bool,
    scopes: Collection[str],
    days: int,
    is_quarantined: bool,
) -> NewToken:
    """Make a token for one project, or for all of them if that is said.

    Raises:
        StoreError: neither or both are said, the project cannot be, or a scope is not known.
    """
    unknown = [scope for scope in scopes if scope not in set(Scope)]
    if unknown:
        raise StoreError(f"scope {unknown[0]!r}: the scopes are {', '.join(Scope)}, each by a --scope of its own")
    if (project is None) != all_projects:
        raise StoreError("for which project? Name it with --project, or say --all-projects")
    if project is not None:
        check_project(project)
    return create_token(
        engine,
        name=name,
        project=project,
        scopes={Scope(scope) for scope in scopes},
        now=datetime.now(UTC),
        validity=timedelta(days=days),
        is_quarantined=is_quarantined,
        actor=ACTOR,
    )


def tokens_table(tokens: Sequence[Token]) -> Table:
    table = Table("id", "for", "project", "scopes", "ends", "last used", "state")
    now = datetime.now(UTC)
    for token in tokens:
        table.add_row(
            token.token_id,
            printable(token.name),
            printable(token.project or "all"),
            " ".join(token.scopes),
            f"{token.expires_at:%Y-%m-%d}",
            "never" if token.last_used_at is None else f"{token.last_used_at:%Y-%m-%d %H:%M}",
            _state(token, now),
        )
    return table


def repositories_table(trusted: Sequence[TrustedRepository]) -> Table:
    table = Table("repository", "project", "refs that count")
    for one in trusted:
        table.add_row(printable(one.repository), printable(one.project), printable(" ".join(one.refs)))
    return table


def _state(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at <= now:
        return "expired"
    return "quarantine" if token.is_quarantined else "good"
