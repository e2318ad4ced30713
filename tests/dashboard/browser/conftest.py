from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browsing import launched


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not of the whole session: no other test can run an event loop meanwhile."""
    with launched() as browser:
        yield browser
