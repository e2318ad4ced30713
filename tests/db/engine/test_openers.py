"""Every connection to a database is one of ours: opened in one place, and prepared there."""

import re
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, text

from roofwatch.db.engine.session import open_again
from roofwatch.db.errors import StoreError

ROOT = Path(__file__).parents[3]
PACKAGES = ("collector", "db", "ci", "api", "dashboard", "roofwatch")


@pytest.fixture
def elsewhere(database_url: URL, store: Engine) -> URL:
    """A database that whoever runs it has given a time zone of its own."""
    with store.begin() as connection:
        connection.execute(text(f"ALTER DATABASE {database_url.database} SET timezone = 'Pacific/Auckland'"))
    return database_url


def test_a_store_that_is_gone_is_told_as_that(elsewhere: URL) -> None:
    with pytest.raises(StoreError, match="cannot be reached"), open_again(elsewhere.set(port=1, host="127.0.0.1")):
        pass


def test_engines_are_made_in_one_place() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]

    makers = {str(file.relative_to(ROOT)) for file in files if re.search(r"\bcreate_engine\b", file.read_text())}

    assert makers == {"db/engine/session.py"}
