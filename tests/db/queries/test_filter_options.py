"""By what the results of a project can be narrowed."""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import SourceLine
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.queries.filter_options import read_filter_options
from roofwatch.db.queries.results import CaseOption, FilterOptions
from tests.builders import PROJECT, make_case, make_commit, make_environment, make_record, sha_of

SOFTMAX = "softmax/n=8/float16/fwd"


def read(store: Engine, project: str | None = PROJECT) -> FilterOptions:
    with Session(store) as session:
        return read_filter_options(session, project)


def test_a_case_has_the_family_and_tags_of_the_newest_run_that_knows_it(store: Engine) -> None:
    for number, tags in enumerate((("smoke",), ("smoke", "full"))):
        case = make_case(SOFTMAX, family=f"family {number}", tags=tags)
        ingest_record(store, make_record(number, measurements=[], cases=(case,)))
    assert read(store).cases == (CaseOption(SOFTMAX, "softmax", "float16", "family 1", ("smoke", "full")),)


def test_branches_have_their_commits_and_runner_classes_are_named_once(store: Engine) -> None:
    another = make_environment(device_name="Another CPU")
    for number, environment in enumerate((make_environment(), make_environment(), another)):
        ingest_record(store, make_record(number, environment=environment))
    ingest_record(store, make_record(commit=make_commit(3, branch="feature")))

    found = read(store)

    assert found.commits_by_branch == {"main": set(map(sha_of, range(3))), "feature": {make_commit(3).sha}}
    assert (found.runner_classes, found.commit_count) == ((another.runner_class, make_environment().runner_class), 4)


def test_a_kernel_is_where_the_newest_run_that_knows_it_says_and_what_triton_compiles_says_it_first(
    store: Engine,
) -> None:
    def line(file: str, *, is_jitted: bool) -> SourceLine:
        return SourceLine(
            kernel="softmax", implementation="triton", function="f", file=file, line=1, is_jitted=is_jitted
        )

    lines = [
        (line("old.py", is_jitted=True),),
        (line("launcher.py", is_jitted=False), line("kernel.py", is_jitted=True)),
        (),
    ]
    for number, own in enumerate(lines):
        ingest_record(store, make_record(number, source_lines=own))
    assert read(store).source_files == {"softmax": "kernel.py"}


def test_other_projects_do_not_count_and_one_that_is_not_there_has_nothing(store: Engine) -> None:
    ingest_record(store, make_record(project="another/project"))
    assert read(store) == FilterOptions((), {}, (), projects=("another/project",))


def test_where_no_project_is_named_the_first_answers_and_a_quarantine_is_none(store: Engine) -> None:
    assert read(store, None) == FilterOptions((), {}, ())
    for project in ("b/project", "a/project"):
        ingest_record(store, make_record(project=project, measurements=[], cases=(make_case(SOFTMAX, family=project),)))
    ingest_record(store, make_record(5, project="0/fork"), is_quarantined=True)
    found = read(store, None)
    assert found == read(store, "a/project")
    assert [case.family for case in found.cases] == ["a/project"]
    assert found.projects == ("a/project", "b/project")
