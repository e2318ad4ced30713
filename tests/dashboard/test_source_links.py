"""Commits and lines lead to where people read the code, and records cannot make them lead elsewhere."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from roofwatch.dashboard.source_links import SourceLinks, linked
from roofwatch.db.regressions.triage import regression_id
from tests.builders import sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import SLOWER_AT, store_history
from tests.dashboard.test_views import texts

LINKS = SourceLinks.of_project("https://github.com/{project}", "owner/kernels")


def test_a_commit_and_a_line_have_the_site_s_own_addresses() -> None:
    assert LINKS.commit("abc") == "https://github.com/owner/kernels/commit/abc"
    assert LINKS.line("abc", "kernels/soft max.py", 12) == (
        "https://github.com/owner/kernels/blob/abc/kernels/soft%20max.py#L12"
    )


@pytest.mark.parametrize("file", ["../../evil/repo/blob/x.py", "a/../../x.py", "/etc/passwd", "a\\..\\x.py"])
def test_a_file_outside_of_the_repository_has_no_address(file: str) -> None:
    assert LINKS.line("abc", file, 1) is None


def test_what_a_record_says_cannot_end_the_link() -> None:
    address = LINKS.line("abc", "a)](javascript:alert(1)) [x](y", 1)
    assert address is not None
    assert not set("()[] ") & set(address)


def test_without_the_setting_nothing_is_a_link() -> None:
    nowhere = SourceLinks.of_project(None, "owner/kernels")
    assert linked("`abc`", nowhere.commit("abc")) == "`abc`"
    assert nowhere.line("abc", "x.py", 1) is None


def test_the_commit_of_a_regression_is_a_link(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_REPOSITORY_URL", "https://git.example.com/{project}")
    slower = store_history(store)[0]
    sha = sha_of(SLOWER_AT)
    address = f"https://git.example.com/example/project/commit/{sha}"
    rows = "".join(one.proto.body for one in open_view("overview").get("html"))
    assert f'<a href="{address}">{sha[:8]}</a>' in rows
    assert f"[`{sha[:8]}`]({address})" in texts(open_view("regression", regression=str(regression_id(slower))))
