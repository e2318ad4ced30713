"""What is stored of a record is hashed as the record itself says it."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import orjson
import pytest
from pydantic import BaseModel

from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.skipped_kernel import SkippedKernel
from roofwatch.collector.record.source_line import SourceLine
from roofwatch.db.ingest.content import Content
from roofwatch.db.ingest.saying import write
from tests.builders import make_artefact, make_record
from tests.db.queries.test_records import full_record

HALF_PAST = datetime(2026, 3, 1, 12, 0, 0, 120_000, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))


def with_unread_fields() -> RunRecord:
    document = orjson.loads(full_record().to_json())
    document["mood"] = {"at": "noon", "values": [1.5, None]}
    document["measurements"][0]["blocks"][0]["weather"] = "fine"
    return RunRecord.from_parsed(document, name="newer")


RECORDS: dict[str, Callable[[], RunRecord]] = {
    "with something in every field": full_record,
    "from its JSON": lambda: RunRecord.from_json(full_record().to_json(), name="sent"),
    "with next to nothing": lambda: make_record(measurements=()),
    "with files, lines and kernels that were left out": lambda: make_record(
        artefacts=(make_artefact(),),
        source_lines=(SourceLine(kernel="softmax", implementation="triton", function="f", file="kernel.py", line=7),),
        skipped=(SkippedKernel(kernel="geglu", reason="same_sources"),),
    ),
    "far from UTC": lambda: full_record(started_at=HALF_PAST, finished_at=HALF_PAST),
    "of a newer harness": with_unread_fields,
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_said_as_it_says_itself(name: str) -> None:
    record = RECORDS[name]()

    unread: list[BaseModel] = []
    document = b"".join(write(record, unread))

    assert document == orjson.dumps(record.said(), option=orjson.OPT_SORT_KEYS)
    assert Content(record).hash == record.content_hash
    assert bool(unread) == bool(record.unread_fields())
    assert Content(record).unread_fields == record.unread_fields()
