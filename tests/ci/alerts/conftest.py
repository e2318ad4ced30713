from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import PROJECT, make_record, make_regression
from tests.ci.alerts.receivers import Hook, open_hook


@pytest.fixture
def hook() -> Iterator[Hook]:
    with open_hook() as hook:
        yield hook


@pytest.fixture
def judged(store: Engine) -> Engine:
    """A store with a regression that raises an alert."""
    for number in range(3):
        ingest_record(store, make_record(number))
    replace_regressions(store, PROJECT, [make_regression(1, is_confirmed=True, is_alert=True)])
    return store
