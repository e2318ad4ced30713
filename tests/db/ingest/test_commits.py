"""A commit is stored once, by whichever runs know it best."""

from itertools import permutations

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.schema.runs import CommitRow
from tests.builders import make_commit, make_record, sha_of


def commits_of(store: Engine) -> list[tuple[int, list[str]]]:
    """Place and parents of each."""
    with Session(store) as session:
        return [(commit.first_parent_count, commit.parents) for commit in session.scalars(select(CommitRow))]


MERGE = (sha_of(4), sha_of(4, branch="feature"))
"""What a whole clone says of a commit; one of fifty commits knows its parents and counts too few; one of one commit."""
CLONES = {"whole": (40, MERGE), "of fifty": (7, MERGE), "of one": (1, ())}


@pytest.mark.parametrize("order", [*permutations(CLONES)], ids=", ".join)
def test_a_commit_is_known_as_by_the_best_clone_whichever_came_first(store: Engine, order: tuple[str, ...]) -> None:
    for name in order:
        count, parents = CLONES[name]
        ingest_record(store, make_record(commit=make_commit(5, first_parent_count=count, parents=parents)))

    assert commits_of(store) == [(40, list(MERGE))]


def test_parents_and_place_are_each_taken_from_who_knows_them(store: Engine) -> None:
    for count, parents in ((40, ()), (1, MERGE), (1, MERGE[::-1]), (1, MERGE[:1])):
        ingest_record(store, make_record(commit=make_commit(5, first_parent_count=count, parents=parents)))

    assert commits_of(store) == [(40, list(MERGE))]


def test_a_commit_that_says_nothing_new_is_not_waited_for(store: Engine) -> None:
    """Runs of one commit are stored beside each other; before, each waited for the end of the one before it."""
    ingest_record(store, make_record(5))
    with store.begin() as connection:
        connection.execute(select(CommitRow).with_for_update(key_share=True)).one()
        impatient = create_engine(store.url.update_query_dict({"options": "-clock_timeout=5s"}))
        assert ingest_record(impatient, make_record(5)).was_new
        impatient.dispose()
