"""What the arguments and settings of commands stand for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from roofwatch.collector.compile.targets import DEFAULT_TARGETS, parse_target
from roofwatch.collector.device.clock_lock import parse_clock
from roofwatch.collector.device.readings import UnfitDevice
from roofwatch.collector.errors import SuiteError
from roofwatch.collector.git import commit_of, find_repository
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt, SuiteSource, import_roots
from roofwatch.collector.timing.method import EFFORTS, Preset

if TYPE_CHECKING:  # a machine that only measures has no SQLAlchemy
    from sqlalchemy import Engine


def configured_url() -> str | None:
    """Of the database that the settings name, with its password; None for the embedded one."""
    from roofwatch.settings import load_settings

    url = load_settings().database_url
    return None if url is None else url.get_secret_value()


def open_configured_store() -> AbstractContextManager[Engine]:
    """The store that the settings name, else the embedded one."""
    from roofwatch.db.engine.session import open_store
    from roofwatch.settings import load_settings

    settings = load_settings()
    return open_store(configured_url(), folder=settings.data_dir, connections=settings.database_connections)


def open_configured_server() -> AbstractContextManager[Engine]:
    """The same, whatever the state of its schema."""
    from roofwatch.db.engine.session import open_server
    from roofwatch.settings import load_settings

    settings = load_settings()
    return open_server(configured_url(), folder=settings.data_dir, connections=settings.database_connections)


def suite_source(path: Path | None, module: str | None = None) -> SuiteSource:
    """The suite of a path; our own for None.

    Args:
        path: A benchmark file or folder, or a file of signatures.
        module: Of signatures, only those of this module.

    Raises:
        SuiteError: there is no such file or folder.
    """
    if path is None:
        return SuiteSource()
    resolved = path.resolve()
    if not resolved.exists():
        raise SuiteError(f"{path}: no such file or folder")
    return SuiteSource(resolved, import_roots(find_repository(resolved)), module)


def suite_at(path: Path | None, project: str | None) -> SuiteAt:
    """The suite of a path at the commit that its repository is at."""
    source = suite_source(path)
    commit, name = commit_of(Path(__file__) if source.path is None else source.path)
    return SuiteAt(source, commit, project or ("roofwatch" if source.path is None else name))


def run_plan(
    *,
    kernels: list[str] | None,
    implementations: list[str] | None,
    tags: list[str] | None = None,
    usual_tag: str | None = None,
    targets: str | None,
    device: str | None = None,
    threads: int = 1,
    blocks: int | None = None,
    preset: str = Preset.SURVEY,
    timer: str = "auto",
    cache: str | None = None,
    lock_clocks: str | None = None,
    unfit_device: UnfitDevice | None = None,
    launch_timeout_s: float = RunPlan.launch_timeout_s,
    preparation_timeout_s: float = RunPlan.preparation_timeout_s,
    check_timeout_s: float = RunPlan.check_timeout_s,
    compile_timeout_s: float = RunPlan.compile_timeout_s,
    has_profiles: bool = False,
) -> RunPlan:
    """A plan from options.

    Raises:
        TargetError: a target that is not known.
        CollectorError: a clock that cannot be.
    """
    chosen = DEFAULT_TARGETS if targets is None else tuple(target for target in targets.split(",") if target)
    for target in chosen:
        parse_target(target)
    effort = EFFORTS[Preset(preset)]
    return RunPlan(
        kernels=tuple(kernels or ("*",)),
        implementations=tuple(implementations or ("*",)),
        tags=tuple(tags) if tags else None,
        usual_tag=usual_tag,
        targets=chosen,
        device=device,
        thread_count=threads,
        block_count=blocks or effort.block_count,
        has_fresh_processes=effort.has_fresh_processes,
        sampling=effort.sampling,
        timer=None if timer == "auto" else Timer(timer),
        cache=None if cache is None else CacheState(cache),
        lock_clocks=None if lock_clocks is None else parse_clock(lock_clocks),
        unfit_device=unfit_device or ("refuse" if effort.refuses_unfit_device else None),
        launch_timeout_s=launch_timeout_s,
        preparation_timeout_s=preparation_timeout_s,
        check_timeout_s=check_timeout_s,
        compile_timeout_s=compile_timeout_s,
        has_profiles=has_profiles,
    )
