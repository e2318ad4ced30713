"""The disk cache of the static layer, and the digests that its keys are made of."""

import contextlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.cuda import write_to_cache
from roofwatch.install import PACKAGE_DIR
from roofwatch.model.files import cache_dir

MAX_BYTES = 512 * 2**20
"""About forty times the size of the bundled suite for six targets."""

_COMPILER_VARIABLES = (
    "TRITON_",
    "AMDGCN_",
    "NVPTX_",
    "MLIR_",
    "LLVM_",
    "PTXAS_",
    "DISABLE_",
    "HIP_",
    "ROCM_",
    "CUDA_",
)
"""Prefixes of the environment variables that compilers read."""
_OTHER_VARIABLES = (
    "USE_IR_LOC",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONOPTIMIZE",
    "PYTHONHASHSEED",
)
_IGNORED_VARIABLES = frozenset(
    {"TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_DISABLE_LINE_INFO"}
)


def toolchain_digest(environment: Mapping[str, str]) -> str:
    """Return a digest of Python, installed packages, compiler settings and roofwatch itself,
    without importing them.
    """
    settings = {name: value for name, value in environment.items() if _is_compiler_setting(name)}
    programs = {
        value: digest_of_file(value) for name, value in settings.items() if name.endswith("_PATH")
    }
    own_files = [
        *sorted((PACKAGE_DIR / "collector").resolve().rglob("*.py")),
        *sorted((PACKAGE_DIR / "model").glob("*.py")),
        *sorted((PACKAGE_DIR / "spec").glob("*.py")),
        PACKAGE_DIR / "__init__.py",
        PACKAGE_DIR / "cuda.py",
    ]
    return digest_of(
        [sys.version, platform.machine(), settings, programs],
        installed_packages(),
        [[file.name, digest_of_file(file)] for file in own_files],
    )


def _is_compiler_setting(name: str) -> bool:
    return (
        name.startswith(_COMPILER_VARIABLES) or name in _OTHER_VARIABLES
    ) and name not in _IGNORED_VARIABLES


def installed_packages() -> list[tuple[str, str | None]]:
    """Return the name with version of each installed package, and a digest of its RECORD, which
    lists file hashes.
    """
    folders = dict.fromkeys(Path(folder or ".") for folder in sys.path)
    return sorted(
        (entry.name, digest_of_file(entry / "RECORD"))
        for folder in folders
        for entry in folder.glob("*.dist-info")
    )


@dataclass(frozen=True)
class DiskCache:
    """A folder of JSON files. Any number of processes may use it at once; it may be deleted at any
    time.
    """

    folder: Path

    @classmethod
    def of_user(cls) -> "DiskCache":
        return cls(cache_dir() / "static")

    def get(self, key: str) -> Any:
        """Return the value; None if it is missing or damaged."""
        try:
            return orjson.loads(self._file(key).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None

    def put(self, key: str, value: Any) -> None:
        """Store a value; ignore failures to write."""
        write_to_cache(self._file(key), orjson.dumps(value))

    def shrink(self, max_bytes: int = MAX_BYTES) -> None:
        """Delete the oldest entries until the rest fits."""
        with contextlib.suppress(FileNotFoundError):  # another process deletes entries
            entries = [(file.stat(), file) for file in self.folder.glob("*/*.json")]
            excess = sum(status.st_size for status, _ in entries) - max_bytes
            for status, file in sorted(entries, key=lambda entry: entry[0].st_mtime_ns):
                if excess > 0:
                    file.unlink()
                    excess -= status.st_size

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"
