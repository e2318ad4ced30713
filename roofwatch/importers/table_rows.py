"""The records of a table as flat mappings: CSV, JSON, JSON lines, and results of tests as XML."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from roofwatch.importers import FileImportError, parse_json, read_bytes
from roofwatch.importers.table_map import TableMap

Record = Mapping[str, Any]
"""Values by column; a nested object has dots in its columns."""
_PATH = "path"
"""Column with the names of a tree's nodes."""
_ROOT = "ROOT"
_LISTS_KEPT = 10_000


def read_records(path: Path, columns: TableMap) -> list[Record]:
    """Read the records of a file.

    Raises:
        FileImportError: it is damaged, or of no known form.
    """
    document = read_bytes(path)
    start = document.lstrip()[:1]
    if start in (b"[", b"{"):
        records = list(_json_records(parse_json(document, path), columns, path))
    elif start == b"<":
        records = list(_xml_records(document, path))
    else:
        records = [dict(row) for row in csv.DictReader(io.StringIO(document.decode("utf-8-sig")))]
    if columns.zip:
        records = [item for record in records for item in _zipped(record, columns.zip)]
    if columns.beside:
        beside = path.parent / columns.beside
        if not beside.is_file():
            raise FileImportError(f"{path}: needs {columns.beside} in the same folder")
        shared = _flat(parse_json(read_bytes(beside), beside), f"{beside.stem}.")
        records = [{**shared, **record} for record in records]
    return records


def _json_records(parsed: Any, columns: TableMap, path: Path) -> Iterator[Record]:
    entries = parsed if isinstance(parsed, list) else [parsed]
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise FileImportError(f"{path}: is no list of JSON objects")
        if columns.tree:
            yield from _nodes(entry, columns.tree, ())
        else:
            yield from _descend(entry, columns.rows.split(".") if columns.rows else [], {})


def _descend(entry: Mapping[str, Any], steps: Sequence[str], outer: Record) -> Iterator[Record]:
    """Follow a path of lists; what encloses a record is part of it."""
    if not steps:
        yield {**outer, **_flat(entry)}
        return
    children = entry.get(steps[0])
    enclosing = {key: value for key, value in entry.items() if key != steps[0]}
    shared = {**outer, **_flat(enclosing)}
    for child in children if isinstance(children, list) else [children]:
        if isinstance(child, Mapping):
            yield from _descend(child, steps[1:], shared)


def _nodes(node: Mapping[str, Any], children_key: str, names: tuple[str, ...]) -> Iterator[Record]:
    """Walk a tree from the root on."""
    own = {key: value for key, value in node.items() if key != children_key}
    record = _flat(own)
    name = str(record.get("frame.name", record.get("name", "")))
    path = names if name in ("", _ROOT) else (*names, name)
    yield {**record, _PATH: " > ".join(path)}
    for child in node.get(children_key) or ():
        if isinstance(child, Mapping):
            yield from _nodes(child, children_key, path)


def _xml_records(document: bytes, path: Path) -> Iterator[Record]:
    """Read the test cases of a JUnit file: attributes and properties."""
    # an entity may expand without end
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        raise FileImportError(f"{path}: XML with a document type is not read")
    try:
        root = ElementTree.fromstring(document)  # noqa: S314 -- without a document type
    except ElementTree.ParseError as error:
        raise FileImportError(f"{path}: not complete XML ({error}); copy it again") from None
    for case in root.iter("testcase"):
        record: dict[str, Any] = dict(case.attrib)
        for setting in case.iter("property"):
            record[str(setting.get("name"))] = setting.get("value")
        failed = next((kind for kind in ("failure", "error") if case.find(kind) is not None), None)
        record["status"] = failed or ("skipped" if case.find("skipped") is not None else "ok")
        yield record


def _zipped(record: Record, column: str) -> Iterator[Record]:
    items = record.get(column)
    if not isinstance(items, list):
        return
    columns = {
        name: values
        for name, values in record.items()
        if isinstance(values, list) and len(values) == len(items)
    }
    for position in range(min(len(items), _LISTS_KEPT)):
        yield {**record, **{name: values[position] for name, values in columns.items()}}


def _flat(entry: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Join nested keys with dots; lists stay lists."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{start}{key}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            found[f"{start}{key}"] = [
                item if isinstance(item, str | int | float) else json.dumps(item) for item in value
            ]
        else:
            found[f"{start}{key}"] = value
    return found
