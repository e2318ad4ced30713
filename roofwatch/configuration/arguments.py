"""Resolve arguments and settings of commands: suites and databases."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from roofwatch.collector.build.prepare import prepare_suite
from roofwatch.collector.git import carried_commit, commit_of, find_repository
from roofwatch.collector.suite import SuiteAt
from roofwatch.install import PACKAGE_DIR
from roofwatch.model.errors import GitError, SuiteError
from roofwatch.model.suite_source import SuiteSource

if TYPE_CHECKING:  # the core installs no SQLAlchemy
    from sqlalchemy import Engine


def configured_url() -> str | None:
    """Database URL from the settings, with its password; None for the embedded database."""
    from roofwatch.configuration.settings import load_settings

    settings = load_settings()
    if settings.database_url is None:
        return None
    if settings.database_password is None:
        return settings.database_url.get_secret_value()
    from roofwatch.db.engine.session import parse_url

    url = parse_url(settings.database_url.get_secret_value())
    return url.set(password=settings.database_password.get_secret_value()).render_as_string(
        hide_password=False
    )


def open_configured_store() -> AbstractContextManager[Engine]:
    """Open the configured database, else the embedded one, and check its schema."""
    from roofwatch.configuration.settings import load_settings
    from roofwatch.db.engine.session import open_store

    settings = load_settings()
    return open_store(
        configured_url(),
        folder=settings.data_dir,
        connections=settings.database_connections,
    )


def open_configured_server() -> AbstractContextManager[Engine]:
    """Open the same database without checking its schema."""
    from roofwatch.configuration.settings import load_settings
    from roofwatch.db.engine.session import open_server

    settings = load_settings()
    return open_server(
        configured_url(),
        folder=settings.data_dir,
        connections=settings.database_connections,
    )


def repository_of(path: Path | None) -> Path:
    """Find the repository of a suite; None means the bundled suite.

    Raises:
        GitError: the suite is not in a git repository.
    """
    inside = PACKAGE_DIR if path is None else path.resolve()
    repository = find_repository(inside)
    if repository is None:
        raise GitError(f"{inside}: not in a git repository, so it has no history")
    return repository


def suite_source(path: Path | None) -> SuiteSource:
    """Find the suite in a benchmark file or folder; None for the bundled suite.

    Raises:
        SuiteError: the path does not exist.
    """
    if path is None:
        return SuiteSource()
    resolved = path.resolve()
    if not resolved.exists():
        raise SuiteError(f"{path}: no such file or folder")
    return prepare_suite(resolved, find_repository(resolved))


def suite_at(path: Path | None, project: str | None) -> SuiteAt:
    """Find the suite at a path, with the commit that its repository is at."""
    source = suite_source(path)
    if source.path is not None:
        commit, name = commit_of(source.path)
        return SuiteAt(source, commit, project or name)
    commit = carried_commit() or commit_of(PACKAGE_DIR)[0]
    return SuiteAt(source, commit, project or "roofwatch")
