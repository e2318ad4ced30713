"""What records take of memory is known before they are parsed, and bounded for all of them together."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from bench.full_record import make_record
from roofwatch.api.json_limits import parse_bounded, weigh
from roofwatch.api.limits import Limits
from roofwatch.api.memory import Memory
from roofwatch.api.problems import ProblemError
from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.record import RunRecord

_BEGIN = b'{"schema_version":"1.9","run_id":"x","x":'


def _document(kind: str) -> bytes:
    numbers = range(20_000)
    distinct = {
        "keys": b"{" + b",".join(b'"%x":1' % number for number in numbers) + b"}",
        "strings": b"[" + b",".join(b'"%x"' % number for number in numbers) + b"]",
        "long strings": b"[" + b",".join(b'"%0100x"' % number for number in numbers) + b"]",
        "one wide character": b"[" + b",".join([b'"' + b"a" * 99_990 + "\U0001f525".encode() + b'"'] * 5) + b"]",
        "one escaped character": b"[" + b",".join([b'"' + b"a" * 99_980 + rb"\ud83d\udd25" + b'"'] * 5) + b"]",
        "wide strings": b"[" + ",".join(f'"{number:x}\U0001f525"' for number in numbers).encode() + b"]",
        "numbers": b"[" + b",".join(b"%d" % (1_000 + number) for number in numbers) + b"]",
        "lists": b"[" + b",".join(b"[%d]" % (1_000 + number) for number in numbers) + b"]",
        "objects": b"[" + b",".join(b'{"%x":{}}' % number for number in numbers) + b"]",
        "nothing": b"[" + b",".join(b"[]" for _ in numbers) + b"]",
    }
    return make_record(1, 40).to_json() if kind == "a record" else _BEGIN + distinct[kind] + b"}"


KINDS = (
    "a record",
    "keys",
    "strings",
    "long strings",
    "one wide character",
    "one escaped character",
    "wide strings",
    "numbers",
    "lists",
    "objects",
    "nothing",
)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_a_document_takes_no_more_memory_than_is_estimated(kind: str) -> None:
    document, limits = _document(kind), Limits()
    tracemalloc.start()
    try:
        parsed = parse_bounded(document, limits)
        # orjson reserves a multiple of the document meanwhile, of which it touches little
        tracemalloc.reset_peak()
        try:
            RunRecord.from_parsed(parsed, name="the record")
        except RecordError:
            assert kind != "a record"
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(document) + peak_bytes <= weigh(document, limits)


def test_what_does_not_fit_waits_and_is_not_overtaken() -> None:
    begun: list[str] = []

    async def read(memory: Memory, name: str, size_bytes: int, end: asyncio.Event) -> None:
        async with memory.share(size_bytes):
            begun.append(name)
            await end.wait()

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def run() -> None:
        memory = Memory(Limits(memory_bytes=100))
        first, others = asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for name, size_bytes, end in (("large", 60, first), ("larger", 80, others), ("small", 10, others)):
                tasks.create_task(read(memory, name, size_bytes, end))
            await turns()
            assert begun == ["large"]

            first.set()
            await turns()
            assert begun == ["large", "larger", "small"]
            others.set()

    asyncio.run(run())


def test_who_waits_too_long_for_memory_is_told_to_come_back() -> None:
    async def run() -> None:
        memory = Memory(Limits(memory_bytes=100, turn_s=0.01))
        async with memory.share(60):
            with pytest.raises(ProblemError) as told:
                async with memory.share(60):
                    pass
        assert (told.value.status, int(told.value.headers["Retry-After"]) > 0) == (503, True)

        async with memory.share(100):
            pass  # who gave up holds nothing

    asyncio.run(run())


def test_a_name_with_an_umlaut_makes_no_record_heavy() -> None:
    record = make_record(1, 40)
    named = record.model_copy(update={"commit": record.commit.model_copy(update={"author": "Jürgen"})})
    plain, wide = (weigh(one.to_json(), Limits(string_characters=1_000)) for one in (record, named))

    assert wide - plain < 10_000
