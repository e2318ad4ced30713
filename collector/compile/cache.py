"""The cache of the static layer: JSON values on disk, under keys that are digests of everything that decides them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from roofwatch.cuda import cache_dir, keep
from roofwatch.install import PACKAGE_DIR

MAX_BYTES = 512 * 2**20
"""About forty times what the bundled suite takes for six targets."""

_SETTINGS = ("TRITON_", "AMDGCN_", "NVPTX_", "MLIR_", "LLVM_", "PTXAS_", "DISABLE_", "HIP_", "ROCM_", "CUDA_")
"""Prefixes of the environment variables that compilers read."""
_MORE_SETTINGS = ("USE_IR_LOC", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONOPTIMIZE", "PYTHONHASHSEED")
_NO_EFFECT = frozenset({"TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_DISABLE_LINE_INFO"})


def digest_of(*values: Any) -> str:
    """sha256 of values that JSON can express; the order of dictionary keys does not matter."""
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()


def digest_of_file(path: str | Path) -> str | None:
    """sha256 of the content; None if there is no such file."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def toolchain_digest() -> str:
    """Digest of everything that compiles a suite besides the suite: Python, installed packages, compiler settings and
    roofwatch. Nothing of it is imported: a package is identified by its `RECORD`, which lists a hash of each file.
    """
    settings = {name: value for name, value in sorted(os.environ.items()) if _is_setting(name)}
    tools = {value: digest_of_file(value) for name, value in settings.items() if name.endswith("_PATH")}
    return digest_of(
        [sys.version, platform.machine(), settings, tools],
        sorted(_installed()),
        [[file.name, digest_of_file(file)] for file in _own_files()],
    )


def _is_setting(name: str) -> bool:
    return (name.startswith(_SETTINGS) or name in _MORE_SETTINGS) and name not in _NO_EFFECT


def _installed() -> Iterator[tuple[str, str | None]]:
    """Name and version of each installed distribution, with a digest of its files' hashes."""
    for place in dict.fromkeys(sys.path):
        for entry in Path(place or ".").glob("*.dist-info"):
            yield entry.name, digest_of_file(entry / "RECORD")


def _own_files() -> Iterator[Path]:
    yield from sorted((PACKAGE_DIR / "collector").resolve().rglob("*.py"))
    yield from (PACKAGE_DIR / "__init__.py", PACKAGE_DIR / "cuda.py", *sorted((PACKAGE_DIR / "spec").glob("*.py")))


@dataclass(frozen=True)
class DiskCache:
    """A folder of JSON files that any number of processes may use at once, and that may be deleted at any time."""

    folder: Path

    @classmethod
    def of_user(cls) -> DiskCache:
        """In `$ROOFWATCH_CACHE_DIR`, else in the folder `roofwatch` of `$XDG_CACHE_HOME` or `~/.cache`."""
        return cls(cache_dir() / "static")

    def get(self, kind: str, key: str) -> dict[str, Any] | None:
        """The value; None if there is none, or it is damaged."""
        try:
            found = orjson.loads(self._file(kind, key).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, kind: str, key: str, value: dict[str, Any]) -> None:
        """Store a value; one that cannot be written is left out."""
        keep(self._file(kind, key), orjson.dumps(value))

    def shrink(self, max_bytes: int = MAX_BYTES) -> None:
        """Delete the oldest entries until the rest fits."""
        entries = []
        for file in self.folder.glob("*/*/*.json"):
            with contextlib.suppress(OSError):  # another process may delete it too
                status = file.stat()
                entries.append((status.st_mtime_ns, status.st_size, file))
        excess = sum(size for _, size, _ in entries) - max_bytes
        for _, size, file in sorted(entries):
            if excess <= 0:
                return
            file.unlink(missing_ok=True)
            excess -= size

    def _file(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / f"{key}.json"
