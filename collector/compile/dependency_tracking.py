"""A worker's account of what its answers were made from: the suite's modules, and all that was read beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from roofwatch.collector.compile.closure import SuiteModules, modules_since
from roofwatch.collector.compile.sources import Watch
from roofwatch.collector.compile.toolchain import toolchain_folders
from roofwatch.collector.suite import SuiteSource
from roofwatch.collector.workers.protocol import CaseSources, SuiteSources
from roofwatch.cuda import cache_dir
from roofwatch.install import PACKAGE_DIR
from roofwatch.spec import KernelSpec


class WatchedSuite:
    """Begins to watch when it is made, which is before the suite is loaded."""

    def __init__(self) -> None:
        from triton import knobs

        self._before = frozenset(sys.modules)
        self._watch = Watch.start(
            [*toolchain_folders(), cache_dir(), Path(knobs.cache.dir)], watched=PACKAGE_DIR / "kernels"
        )
        self._loaded: frozenset[str] = frozenset()
        self._import_roots: tuple[Path, ...] = ()
        self._are_as_loaded = False
        self._closures: dict[str, str] = {}

    def is_loaded(self, source: SuiteSource) -> None:
        """The suite is there now: its modules are those imported since the watch began."""
        self._import_roots = source.import_roots
        self._loaded = frozenset(sys.modules)

    def begin_case(self) -> None:
        """What was read for the case before alone counts no more."""
        self._watch.begin_case()

    def of_suite(self, specs: Sequence[KernelSpec]) -> SuiteSources:
        """What the list of kernels was made from."""
        digests = {spec.name: self._modules.code_digests(spec) for spec in specs}
        folders = {*self._modules.folders, *map(str, self._import_roots)}
        return SuiteSources(
            sources=self._watch.sources(files=self._modules.files, folders=folders),
            closures={spec.name: self._closure(spec) for spec in specs},
            codes={name: each.code for name, each in digests.items()},
            host_sides={name: each.host for name, each in digests.items()},
        )

    def of_case(self, spec: KernelSpec) -> CaseSources:
        """What the facts of the kernel's case that was compiled last were made from."""
        modules = self._modules.files
        later = modules_since(self._loaded) - set(modules)
        sources = self._watch.sources(without=modules, files=later)
        return CaseSources(closure=self._closure(spec), sources=sources if self._are_as_loaded else None)

    @cached_property
    def _modules(self) -> SuiteModules:
        modules = SuiteModules(self._before, self._loaded)
        self._are_as_loaded = not self._watch.has_newer(modules.files)
        return modules

    def _closure(self, spec: KernelSpec) -> str:
        if spec.name not in self._closures:
            self._closures[spec.name] = self._modules.digest(spec)
        return self._closures[spec.name]
