"""`roofwatch static audit`: compiles a suite under several versions of Triton, each installed into its own folder."""

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import orjson
from pydantic import ValidationError

from roofwatch.ci.static.toolchain_audit import Build, Upgrade
from roofwatch.collector.errors import CollectorError, ToolchainError
from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.record.results import StaticFacts
from roofwatch.collector.run_plan import OnProgress, Progress
from roofwatch.cuda import cache_dir
from roofwatch.install import INSTALL_ROOT
from roofwatch.options import RunOptions
from roofwatch.static_gate import judgement_to_json

_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*")
_MAX_REASON = 600


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


def audited_versions(requested: Sequence[str]) -> list[str]:
    """Sort versions by release; add the running version if there is only one.

    Raises:
        CollectorError: the only version is the running one.
    """
    versions = set(requested)
    if len(versions) == 1:
        versions.add(version("triton"))
    if len(versions) == 1:
        raise CollectorError(f"triton {versions.pop()} is the running version: name another one to compare it with")
    return sorted(versions, key=lambda name: [int(part) if part.isdecimal() else 0 for part in name.split(".")])


def build_under_each(
    versions: Sequence[str], arguments: Sequence[str], on_progress: OnProgress = lambda _: None
) -> tuple[Build, ...]:
    """Compile a suite under each version of Triton, given the arguments of `roofwatch static`.

    Raises:
        ToolchainError: a version cannot be installed, or the suite cannot be loaded under it.
    """
    step_count = 2 * len(versions)
    folders = []
    for index, name in enumerate(versions):
        on_progress(Progress(index, step_count, f"triton {name}: installing"))
        folders.append(install_triton(name))
    builds = []
    for index, (name, folder) in enumerate(zip(versions, folders, strict=True)):
        on_progress(Progress(len(versions) + index, step_count, f"triton {name}: compiling"))
        builds.append(_build(name, folder, arguments))
    return tuple(builds)


def install_triton(name: str) -> Path:
    """Install a version of Triton into its own folder in the cache, without dependencies, unless it is there.

    torch pins one version of Triton for pip, but compiling kernels only needs that both can be imported together.

    Raises:
        ToolchainError: pip cannot install it.
    """
    if not _VERSION.fullmatch(name):
        raise ToolchainError(f"triton {name}: not the version of a release; use for example 3.7.1")
    folder = cache_dir() / "environments" / f"triton-{name}-{sys.implementation.cache_tag}"
    if folder.exists() or name == version("triton"):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as temporary:
            target = Path(temporary) / "packages"
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
            install = [*pip, "install", "--no-deps", "--target", str(target), f"triton=={name}"]
            done = subprocess.run(install, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                errors = " ".join(line.removeprefix("ERROR: ") for line in done.stderr.splitlines())
                raise ToolchainError(f"triton {name}: pip cannot install it: {errors[-_MAX_REASON:]}")
            target.rename(folder)
    except OSError as error:
        raise ToolchainError(f"{folder.parent}: cannot be written: {error.strerror}") from None
    return folder


def _build(name: str, folder: Path, arguments: Sequence[str]) -> Build:
    paths = [str(folder), str(INSTALL_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-P", "-m", "roofwatch", "static", *arguments, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    try:
        facts = tuple(map(StaticFacts.model_validate, orjson.loads(done.stdout)["static_facts"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError):
        error = " ".join(done.stderr.split()).removeprefix("roofwatch: ")[-_MAX_REASON:]
        raise ToolchainError(
            f"triton {name}: the suite was not compiled: {error or f'exit status {done.returncode}'}"
        ) from None
    if imported := {fact.toolchain["triton"] for fact in facts if "triton" in fact.toolchain} - {name}:
        raise ToolchainError(f"triton {name}: triton {imported.pop()} comes first on the import path")
    return Build(name, facts)


def exit_status(builds: Sequence[Build], upgrades: Sequence[Upgrade]) -> int:
    """Return 1 if an upgrade made code worse, 2 if memory or time ran out or nothing compiled, else 0."""
    if any(upgrade.worse for upgrade in upgrades):
        return 1
    is_complete = all(
        build.is_complete and any(facts.outcome is Outcome.OK for facts in build.facts) for build in builds
    )
    return 0 if is_complete else 2


def to_json(builds: Sequence[Build], upgrades: Sequence[Upgrade], status: int) -> dict[str, object]:
    return {
        "builds": [{"triton": build.triton, "static_facts": build.facts} for build in builds],
        "upgrades": [
            {
                "from": upgrade.base.triton,
                "to": upgrade.head.triton,
                "counts": {target: upgrade.counts(target) for target in upgrade.targets},
                "judged": [judgement_to_json(item) for item in upgrade.comparison.judged],
            }
            for upgrade in upgrades
        ],
        "exit_code": status,
    }
