"""`roofwatch diff` as a user runs it."""

import json
from pathlib import Path

from tests.builders import CASE_ID, make_activity, make_case, make_profile, make_record
from tests.roofwatch.command import roofwatch

DATA = Path(__file__).parents[2] / "data" / "profiles"
TRACE = DATA / "bert_small_h100.json.gz"


def test_two_traces_give_a_table_json_and_a_page(tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    shown = roofwatch("diff", TRACE, DATA / "nsfw_vit_h100.json.gz", "--html", page)
    document = roofwatch("diff", TRACE, DATA / "nsfw_vit_h100.json.gz", "--json").parsed

    assert shown.status == 0
    assert "added: void" in shown.output
    (ledger,) = document
    terms = ledger["matched_ns"] + ledger["added_ns"] - ledger["removed_ns"]
    assert terms + ledger["gap_change_ns"] - ledger["overlap_change_ns"] == ledger["step_change_ns"] == 3_467_951
    assert "<h1>" in page.read_text()
    assert "BertLMHeadModel" in page.read_text()


def test_two_records_are_compared_case_by_case(tmp_path: Path) -> None:
    files = []
    for total_ns in (3_000, 3_600):
        profile = make_profile(CASE_ID, make_activity(count=3, total_ns=total_ns), span_ns=total_ns, busy_ns=total_ns)
        files.append(tmp_path / f"{total_ns}.json")
        make_record(cases=(make_case(),), measurements=(), accuracies=(), profiles=(profile,)).write(files[-1])

    (ledger,) = roofwatch("diff", *files, "--json").parsed
    assert (ledger["title"], ledger["step_change_ns"], ledger["is_explained"]) == (f"{CASE_ID} triton", 200, True)


def test_files_that_cannot_be_compared_are_refused_with_the_way_out(tmp_path: Path) -> None:
    record, text = tmp_path / "record.json", tmp_path / "notes.txt"
    make_record(profiles=()).write(record)
    text.write_text("not a trace")
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps({"traceEvents": []}))

    for pair, said in (
        ((TRACE, record), "compare two of a kind"),
        ((record, record), "run --profile"),
        ((TRACE, text), "neither a trace"),
        ((TRACE, empty), "no device is in both"),
    ):
        done = roofwatch("diff", *pair)
        assert done.status == 2
        assert said in done.error
