"""The records of a table as flat mappings: CSV, JSON, JSON lines, and results of tests as XML."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from roofwatch.importers import FileImportError, parse_json, read_bytes
from roofwatch.importers.table_map import TableMap

Record = Mapping[str, Any]
"""Values by column; a nested object has dots in its columns."""
_PATH = "path"
"""Column with the names of a tree's nodes."""
# Proton's name of the root, which is no function.
_ROOT = "ROOT"
# A longer list is a tensor, not a list of results.
_MAX_ITEMS = 10_000
_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Table:
    """The records of a file, and what was left out."""

    records: list[Record]
    notes: tuple[str, ...] = ()


def read_table(path: Path, columns: TableMap) -> Table:
    """Read the records of a file.

    Raises:
        FileImportError: it is damaged, or of no known form.
    """
    document = read_bytes(path)
    # A file saved on Windows may begin with a byte-order mark.
    start = document.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    notes: tuple[str, ...] = ()
    # The content decides: files of results have all kinds of names.
    if start in (b"[", b"{"):
        records = list(_json_records(parse_json(document, path), columns, path))
    elif start == b"<":
        records = list(_xml_records(document, path))
    else:
        records, notes = _csv_records(document.decode("utf-8-sig"))
    if columns.zip:
        records, notes = _zipped(records, columns.zip)
    if columns.beside:
        records, notes = _with_file_beside(records, path.parent / columns.beside, notes)
    return Table(records, notes)


def _with_file_beside(
    records: list[Record],
    beside: Path,
    notes: tuple[str, ...],
) -> tuple[list[Record], tuple[str, ...]]:
    """Add the keys of a JSON file in the same folder to each record."""
    if not beside.is_file():
        return records, (*notes, f"there is no {beside.name} in the same folder")
    # What the record says itself comes last, and wins.
    shared = _flat(parse_json(read_bytes(beside), beside), f"{beside.stem}.")
    return [{**shared, **record} for record in records], notes


# --- CSV


def _csv_records(text: str) -> tuple[list[Record], tuple[str, ...]]:
    """Read lines of cells; a line with more or fewer cells than the header is left out."""
    header_line = next((line for line in text.splitlines() if line.strip()), "")
    # The name of a kernel may hold any of the delimiters, so the header decides.
    delimiter = max(_DELIMITERS, key=header_line.count)
    lines = csv.reader(io.StringIO(text), delimiter=delimiter)
    header: list[str] = []
    records: list[Record] = []
    odd_lines: list[int] = []
    for cells in lines:
        stripped = [cell.strip() for cell in cells]
        is_repeated_header = stripped == header  # files that were joined have one each
        if not any(stripped) or is_repeated_header:
            continue
        if not header:
            header = stripped
            continue
        # A delimiter at the end of a line makes an empty cell.
        while len(stripped) > len(header) and not stripped[-1]:
            stripped.pop()
        if len(stripped) != len(header):
            odd_lines.append(lines.line_num)
            continue
        records.append(dict(zip(header, stripped, strict=True)))
    if not odd_lines:
        return records, ()
    note = (
        f"{len(odd_lines)} lines do not have the {len(header)} cells of the header and were left "
        f"out, the first is line {odd_lines[0]}"
    )
    return records, (note,)


# --- JSON


def _json_records(parsed: Any, columns: TableMap, path: Path) -> Iterator[Record]:
    entries = parsed if isinstance(parsed, list) else [parsed]
    steps = columns.rows.split(".") if columns.rows else []
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise FileImportError(f"{path}: is no list of JSON objects")
        if columns.tree:
            yield from _nodes(entry, columns.tree, ())
        else:
            yield from _descend(entry, steps, {})


def _descend(entry: Mapping[str, Any], steps: Sequence[str], outer: Record) -> Iterator[Record]:
    """Follow a path of lists; what encloses a record is part of it."""
    if not steps:
        yield {**outer, **_flat(entry)}
        return
    step, *further_steps = steps
    children = entry.get(step)
    enclosing = {key: value for key, value in entry.items() if key != step}
    shared = {**outer, **_flat(enclosing)}
    # A list of one may be written without brackets.
    if not isinstance(children, list):
        children = [children]
    for child in children:
        if isinstance(child, Mapping):
            yield from _descend(child, further_steps, shared)


def _nodes(node: Mapping[str, Any], children_key: str, names: tuple[str, ...]) -> Iterator[Record]:
    """Walk a tree below its root."""
    fields = {key: value for key, value in node.items() if key != children_key}
    record = _flat(fields)
    # Proton nests the name; Hatchet does not.
    name = str(record.get("frame.name", record.get("name", "")))
    path = names
    if name not in ("", _ROOT):
        path = (*names, name)
    if path:
        yield {**record, _PATH: " > ".join(path)}
    for child in node.get(children_key) or ():
        if isinstance(child, Mapping):
            yield from _nodes(child, children_key, path)


def _zipped(records: Sequence[Record], column: str) -> tuple[list[Record], tuple[str, ...]]:
    """Split each record into one for each item of a list."""
    items_of_records: list[Record] = []
    without_list = 0
    for record in records:
        items = record.get(column)
        if not isinstance(items, list):
            without_list += 1
            continue
        lists: dict[str, list[Any]] = {}
        scalars: dict[str, Any] = {}
        for name, values in record.items():
            if not isinstance(values, list):
                scalars[name] = values
            elif len(values) == len(items):
                lists[name] = values
            # A list of another length cannot be told apart by item.
        for position in range(min(len(items), _MAX_ITEMS)):
            item = {name: values[position] for name, values in lists.items()}
            items_of_records.append({**scalars, **item})
    if not without_list:
        return items_of_records, ()
    return items_of_records, (f"{without_list} records have no list {column} and were left out",)


def _flat(entry: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Join nested keys with dots; lists stay lists."""
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{start}{key}.")
        elif isinstance(value, list):
            # Lists of objects have no cells; they are kept as text.
            flat[f"{start}{key}"] = [
                json.dumps(item) if isinstance(item, Mapping | list) else item for item in value
            ]
        else:
            flat[f"{start}{key}"] = value
    return flat


# --- XML


def _xml_records(document: bytes, path: Path) -> Iterator[Record]:
    """Read the test cases of a JUnit file: attributes and properties."""
    # An entity may expand without end.
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        raise FileImportError(f"{path}: XML with a document type is not read")
    try:
        root = ElementTree.fromstring(document)  # noqa: S314 -- without a document type
    except ElementTree.ParseError as error:
        raise FileImportError(f"{path}: not complete XML ({error}); copy it again") from None
    # A suite of suites repeats the cases of its parts.
    suites = [suite for suite in root.iter("testsuite") if suite.find("testsuite") is None]
    for suite in suites or [root]:
        for case in suite.iter("testcase"):
            yield _xml_record(case, suite)


def _xml_record(case: ElementTree.Element, suite: ElementTree.Element) -> Record:
    record: dict[str, Any] = {"suite.timestamp": suite.get("timestamp")}
    record |= dict(case.attrib)
    for setting in case.iter("property"):
        record[str(setting.get("name"))] = setting.get("value")
    record["status"] = "ok"
    for kind in ("skipped", "error", "failure"):
        element = case.find(kind)
        if element is not None:
            record["status"] = kind
            record["status.message"] = element.get("message") or element.text or ""
    return record
