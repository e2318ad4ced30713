"""What the static layer has found out before: JSON values on the disk under keys that say all that decides them.

An entry is written whole, carries its own checksum, and is ignored where it does not hold; so any number of processes
may use the folder at once, and it may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from roofwatch.cuda import cache_dir, keep

MAX_BYTES = 512 * 2**20
"""Some forty times what the suite that comes with roofwatch takes for six targets."""


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

    def shrink(self, max_bytes: int = MAX_BYTES) -> None:
        """Forget the oldest entries until the rest takes no more than this."""
        entries = []
        for file in self.folder.glob("*/*/*.json"):
            with contextlib.suppress(OSError):  # another process may forget it too
                status = file.stat()
                entries.append((status.st_mtime_ns, status.st_size, file))
        too_much = sum(size for _, size, _ in entries) - max_bytes
        for _, size, file in sorted(entries):
            if too_much <= 0:
                return
            file.unlink(missing_ok=True)
            too_much -= size

    def _file(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / f"{key}.json"
