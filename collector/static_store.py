"""What the static layer has found out before: JSON values on the disk under keys that say all that decides them.

An entry is written whole, carries its own checksum, and is ignored where it does not hold; so any number of processes
may use the folder at once, and it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from roofwatch.cuda import cache_dir, keep


def digest_of(*decides: Any) -> str:
    """A key: equal for equal values that JSON can say, whatever the order of keys in them."""
    return hashlib.sha256(orjson.dumps(decides, option=orjson.OPT_SORT_KEYS)).hexdigest()


@dataclass(frozen=True)
class StaticStore:
    """A folder of such entries, made when the first is put into it."""

    folder: Path

    @classmethod
    def of_user(cls) -> StaticStore:
        """In `$ROOFWATCH_CACHE_DIR`, else in the folder `roofwatch` of `$XDG_CACHE_HOME` or `~/.cache`."""
        return cls(cache_dir() / "static")

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """What was put there; None where nothing was, or it is damaged."""
        try:
            checksum, _, document = self._file(kind, key).read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(document).hexdigest().encode() != checksum:
            return None
        found = orjson.loads(document)
        return found if isinstance(found, dict) else None

    def put(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Remember; what cannot be written is not remembered."""
        document = orjson.dumps(value)
        keep(self._file(kind, key), hashlib.sha256(document).hexdigest().encode() + b"\n" + document)

    def _file(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / f"{key}.json"
