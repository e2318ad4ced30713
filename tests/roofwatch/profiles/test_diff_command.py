"""`roofwatch diff` as a user runs it."""

import json
from html import unescape
from pathlib import Path

from tests.builders import CASE_ID, make_activity, make_profile, make_record, make_static_facts
from tests.roofwatch.command import roofwatch

DATA = Path(__file__).parents[2] / "data" / "profiles"
TRACE = DATA / "bert_small_h100.json.gz"


def test_two_traces_give_a_table() -> None:
    shown = roofwatch("diff", TRACE, DATA / "nsfw_vit_h100.json.gz")

    assert shown.status == 0
    assert "added: void" in shown.output


def test_the_terms_of_two_traces_add_up_to_the_change_of_the_step() -> None:
    (ledger,) = roofwatch("diff", TRACE, DATA / "nsfw_vit_h100.json.gz", "--json").parsed

    terms = ledger["matched_ns"] + ledger["added_ns"] - ledger["removed_ns"]
    assert (
        terms + ledger["gap_change_ns"] - ledger["overlap_change_ns"]
        == ledger["step_change_ns"]
        == 3_467_951
    )


def test_two_traces_give_a_page(tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    roofwatch("diff", TRACE, DATA / "nsfw_vit_h100.json.gz", "--html", page)

    assert "<h1>" in page.read_text()
    assert "BertLMHeadModel" in page.read_text()


def test_two_records_are_compared_case_by_case_by_name_and_machine_code(tmp_path: Path) -> None:
    files = []
    for name, gate_code, total_ns in (
        ("_norm_kernel", "before", 3_000),
        ("_rms_norm_kernel", "after", 3_600),
    ):
        rows = (
            make_activity(name, total_ns=600),
            make_activity("_gate_kernel", total_ns=total_ns - 600),
        )
        facts = (
            make_static_facts(function=name),
            make_static_facts(function="_gate_kernel", code=gate_code),
        )
        files.append(tmp_path / f"{total_ns}.json")
        make_record(static_facts=facts, profiles=(make_profile(CASE_ID, *rows),)).write(files[-1])
    page = tmp_path / "diff.html"

    (ledger,) = roofwatch("diff", *files, "--json", "--html", page).parsed
    assert (ledger["title"], ledger["step_change_ns"], ledger["is_explained"]) == (
        f"{CASE_ID} triton",
        200,
        True,
    )
    assert [(row["change"], row["change_ns"]) for row in ledger["rows"]] == [
        ("code changed", 200),
        ("renamed, same code", 0),
    ]
    for text in (roofwatch("diff", *files).output, unescape(page.read_text())):
        assert "code changed: _gate_kernel" in text
        assert "renamed, same code: _norm_kernel -> _rms_norm_kernel" in text


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
