from collections.abc import Iterator

import pytest

from tests.github.stand_in import GitHubStandIn, open_github


@pytest.fixture
def github() -> Iterator[GitHubStandIn]:
    with open_github() as stand_in:
        yield stand_in
