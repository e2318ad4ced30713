"""What holds for all views is shown for each that there is."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from roofwatch.dashboard.navigation import VIEWS
from tests.dashboard import test_browser, test_narrowed_views, test_permalinks


@pytest.mark.parametrize(
    "shown",
    [test_browser.VIEWS, test_permalinks.VIEWS, {name.partition(",")[0] for name in test_narrowed_views.VIEWS}],
    ids=["browser", "permalinks", "filters"],
)
def test_no_view_is_left_out(shown: Collection[str]) -> None:
    assert {*VIEWS} - {*shown} == set()
