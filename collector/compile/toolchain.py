"""One digest of all that compiles a suite besides the suite: of another compiler, library, setting or version of
roofwatch nothing that was found out before holds.

Worked out without loading any of it. An installed package is known by its `RECORD`, which lists a hash of each of its
files; a program that a variable names instead, by its content.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from roofwatch.collector.compile.sources import digest_of_file
from roofwatch.collector.compile.static_store import digest_of
from roofwatch.install import PACKAGE_DIR

_COMPILERS = ("triton", "torch", "nvidia_cuda_nvrtc", "cuda_bindings")
"""Their distributions, as the folders of their metadata begin."""
_PACKAGES = ("triton", "torch", "cuda", "nvidia", "numpy", "sympy", "mpmath", "pydantic", "orjson")
"""What a worker loads besides the suite."""
_SETTINGS = ("TRITON_", "AMDGCN_", "NVPTX_", "MLIR_", "LLVM_", "PTXAS_", "DISABLE_", "HIP_", "ROCM_", "CUDA_")
"""Prefixes of variables that a compiler reads by itself, out of Python's sight."""
_MORE_SETTINGS = ("USE_IR_LOC", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONOPTIMIZE", "PYTHONHASHSEED")
_KEEP_THINGS = frozenset({"TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_DISABLE_LINE_INFO"})
_TOOL_SUFFIX = "_PATH"
_COLLECTOR = (PACKAGE_DIR / "collector").resolve()


def toolchain_digest() -> str:
    """Equal digests: equal compilers, libraries, settings and version of roofwatch."""
    settings = {name: value for name, value in sorted(os.environ.items()) if _is_setting(name)}
    named = {value: digest_of_file(value) for name, value in settings.items() if name.endswith(_TOOL_SUFFIX)}
    return digest_of(
        [sys.version, platform.machine(), settings, named],
        sorted(_installed()),
        [[file.name, digest_of_file(file)] for file in _own_files()],
    )


def toolchain_folders() -> list[Path]:
    """Where the packages lie that the digest covers."""
    found = [importlib.util.find_spec(name) for name in _PACKAGES]
    folders = [Path(place) for spec in found if spec for place in spec.submodule_search_locations or ()]
    return [*folders, _COLLECTOR, PACKAGE_DIR, Path(os.__file__).parent]


def _is_setting(name: str) -> bool:
    return (name.startswith(_SETTINGS) or name in _MORE_SETTINGS) and name not in _KEEP_THINGS


def _installed() -> Iterator[tuple[str, str | None]]:
    """The metadata folder of every installed distribution, whose name says the version; with a hash for compilers."""
    for place in dict.fromkeys(sys.path):
        folder = Path(place or ".")
        if not folder.is_dir():
            continue
        for entry in folder.glob("*.dist-info"):
            is_compiler = entry.name.startswith(tuple(f"{name}-" for name in _COMPILERS))
            yield entry.name, digest_of_file(entry / "RECORD") if is_compiler else None


def _own_files() -> Iterator[Path]:
    yield from sorted(_COLLECTOR.rglob("*.py"))
    yield from (PACKAGE_DIR / "__init__.py", PACKAGE_DIR / "cuda.py", *sorted((PACKAGE_DIR / "spec").glob("*.py")))
