"""Compiles a suite under another release of Triton, which is installed into a folder of its own."""

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import orjson
from pydantic import ValidationError

from roofwatch.collector.errors import ToolchainError
from roofwatch.collector.record.results import StaticFacts
from roofwatch.cuda import cache_dir
from roofwatch.install import INSTALL_ROOT
from roofwatch.options import RunOptions

_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*")
_MAX_REASON = 600


def compile_under(triton: str, path: Path | None, options: RunOptions) -> tuple[StaticFacts, ...]:
    """Compile a suite under a release of Triton, in a process of its own.

    Raises:
        ToolchainError: the release cannot be installed, or the suite cannot be loaded under it.
    """
    paths = [str(_install(triton)), str(INSTALL_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-P", "-m", "roofwatch", "static", *static_arguments(path, options), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    try:
        facts = tuple(map(StaticFacts.model_validate, orjson.loads(done.stdout)["static_facts"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError):
        error = " ".join(done.stderr.split()).removeprefix("roofwatch: ")[-_MAX_REASON:]
        reason = error or f"exit status {done.returncode}"
        raise ToolchainError(f"triton {triton}: the suite was not compiled: {reason}") from None
    if imported := {fact.toolchain["triton"] for fact in facts if "triton" in fact.toolchain} - {triton}:
        raise ToolchainError(f"triton {triton}: triton {imported.pop()} comes first on the import path")
    return facts


def static_arguments(path: Path | None, options: RunOptions) -> list[str]:
    """Return the options of `roofwatch static` that differ from their defaults, as arguments."""
    arguments = [] if path is None else [str(path)]
    defaults = RunOptions()
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != getattr(defaults, field.name):
            for one in value if isinstance(value, list) else [value]:
                arguments += [f"--{field.name.replace('_', '-')}", f"{one:g}" if isinstance(one, float) else str(one)]
    return arguments


def _install(triton: str) -> Path:
    """Install a release without its dependencies, unless it is there; return its folder.

    torch pins one release of Triton for pip, but compiling kernels only needs that both can be imported together.
    """
    if not _VERSION.fullmatch(triton):
        raise ToolchainError(f"triton {triton}: not the version of a release; use for example 3.7.1")
    if triton == version("triton"):
        raise ToolchainError(f"triton {triton} is the running version: name another one to compare it with")
    folder = cache_dir() / "environments" / f"triton-{triton}-{sys.implementation.cache_tag}"
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as temporary:
            target = Path(temporary) / "packages"
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
            install = [*pip, "install", "--no-deps", "--target", str(target), f"triton=={triton}"]
            done = subprocess.run(install, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                errors = " ".join(line.removeprefix("ERROR: ") for line in done.stderr.splitlines())
                raise ToolchainError(f"triton {triton}: pip cannot install it: {errors[-_MAX_REASON:]}")
            target.rename(folder)
    except OSError as error:
        raise ToolchainError(f"{folder.parent}: cannot be written: {error.strerror}") from None
    return folder
