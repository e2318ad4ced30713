"""A journal of a run that was refused before it measured anything."""

from pathlib import Path

import pytest

from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.journal import Journal
from tests.builders import make_ceiling, make_environment
from tests.collector.outbox.test_journal import keep, make_header


def leave(path: Path, journal: Journal) -> None:
    """As a process that is killed leaves it, which closes nothing."""
    content = path.read_bytes()
    journal.close()
    path.write_bytes(content)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.json.gz.journal"


def test_a_run_that_ended_when_its_machine_was_described_leaves_nothing_behind(path: Path) -> None:
    with Journal.begin(path, make_header(asked={"timer": "cupti"})) as journal:
        journal.log().append({"start": 5}, environment=make_environment())
        assert journal.result_count == 0

    assert not path.exists()


def test_one_that_was_killed_there_is_in_nobodys_way(path: Path) -> None:
    wrong, right = make_header(asked={"timer": "cupti"}), make_header(asked={"timer": None})
    for go_on in (Journal.begin, Journal.resume):
        killed = Journal.begin(path, wrong)
        killed.log().append({"start": 5}, environment=make_environment())
        leave(path, killed)

        with go_on(path, right) as journal:
            assert journal.header == right
            assert journal.log().past == ()


def test_what_came_back_of_it_is_kept_beside_the_machine_and_counted_without_it(path: Path) -> None:
    with Journal.begin(path, make_header()) as journal:
        journal.log().append({}, environment=make_environment())
        journal.log().append({}, ceilings=(make_ceiling(),))
        keep(journal, "a")
        assert journal.result_count == 2

    with pytest.raises(JournalError, match="an unfinished run with 2 results is there"):
        Journal.begin(path, make_header())
