"""SHA-256 of values and files."""

import hashlib
from pathlib import Path
from typing import Any

import orjson


def digest_of(*values: Any) -> str:
    """Return the SHA-256 of JSON-compatible values;
    the order of dictionary keys does not matter.
    """
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()


def digest_of_file(path: str | Path) -> str | None:
    """Return the SHA-256 of a file's content; None if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
