"""A commit is stored once, with the most that any record knows."""

from sqlalchemy import Engine, create_engine, select
from sqlalchemy.orm import Session

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.schema.runs import CommitRow
from tests.builders import make_commit, make_record, sha_of


def test_commit_keeps_the_largest_count_and_most_parents(store: Engine) -> None:
    merge = (sha_of(4), sha_of(4, branch="feature"))
    for count, parents in ((1, ()), (40, ()), (7, merge), (1, merge[:1])):
        ingest_record(store, make_record(commit=make_commit(5, first_parent_count=count, parents=parents)))

    with Session(store) as session:
        (commit,) = session.scalars(select(CommitRow)).all()
        assert (commit.first_parent_count, commit.parents) == (40, list(merge))


def test_ingest_of_a_known_commit_does_not_wait_for_its_lock(store: Engine) -> None:
    ingest_record(store, make_record(5))
    with store.begin() as connection:
        connection.execute(select(CommitRow).with_for_update(key_share=True)).one()
        impatient = create_engine(store.url.update_query_dict({"options": "-clock_timeout=5s"}))
        assert ingest_record(impatient, make_record(5)).was_new
        impatient.dispose()
