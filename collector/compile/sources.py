"""The source files that each kernel of a suite may use, and digests of them: keys of cached
results.

A kernel uses its part of the modules that declare it, and all modules that these import, at the top
or in functions. It also uses CUDA sources next to these modules, and files whose path is a string
in one of them. A module that imports by a computed name may use every module of the suite.
Installed packages are excluded: the digest of the toolchain covers them.
"""

import os
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roofwatch.collector.compile.source_module import (
    ModulePart,
    SourceModule,
    find_module,
    read_module,
)
from roofwatch.collector.digests import digest_of, digest_of_file
from roofwatch.collector.suite import packages_around
from roofwatch.spec import KernelSpec


@dataclass(frozen=True)
class ProjectPackages:
    """Packages that belong to the measured project."""

    names: frozenset[str] = frozenset()
    folders: tuple[Path, ...] = ()
    """Where its own code lies."""

    def hides(self, name: str) -> bool:
        """Whether a package of the project is not found in its folders."""
        # a package of others, whose version the toolchain's digest has
        if name not in self.names:
            return False
        file = find_module(name)
        # compiled, or not installed: nobody can look at its code
        if file is None:
            return True
        return not any(file.is_relative_to(folder) for folder in self.folders)


@dataclass(frozen=True)
class SourceDigest:
    """Digests of what a kernel may use."""

    everything: str
    host: str
    """Without the functions that Triton compiles: their machine code shows what they do."""


def source_digests(
    specs: Sequence[KernelSpec],
    loaded: Iterable[str],
    project: ProjectPackages = ProjectPackages(),
) -> dict[str, SourceDigest]:
    """Digest all code and data that each kernel may use; comments and docstrings do not count.

    `loaded` names the modules that loading the suite imported. If a kernel imports a package of the
    project from elsewhere, its digest is a new one each time: the code may have changed.
    """
    suite = {name for name in loaded if read_module(ModulePart(name)) is not None}
    digests: dict[str, SourceDigest] = {}
    for spec in specs:
        used = _used_modules(_parts_of(spec, suite), suite)
        if _is_hidden(used, project):
            # A random digest: a cached result would be that of code that nobody looked at.
            digests[spec.name] = SourceDigest(
                everything=uuid.uuid4().hex,
                host=uuid.uuid4().hex,
            )
        else:
            digests[spec.name] = _digest(used)
    return digests


def implementation_digests(
    specs: Sequence[KernelSpec],
    loaded: Iterable[str],
    project: ProjectPackages = ProjectPackages(),
) -> dict[str, str]:
    """Digest all code and data that each implementation may use, by `kernel/implementation`.

    Of modules that are imported and not used, what importing them runs counts: it may change how
    torch works. Otherwise as `source_digests`.
    """
    suite = {name for name in loaded if read_module(ModulePart(name)) is not None}
    digests: dict[str, str] = {}
    for spec in specs:
        for name, implementation in spec.implementations.items():
            parts = _parts_of(spec, suite, implementation.launch)
            used = _used_modules(parts, suite)
            if _is_hidden(used, project):
                digest = uuid.uuid4().hex
            else:
                digest = _digest(used).everything
            digests[f"{spec.name}/{name}"] = digest
    return digests


def _is_hidden(used: Mapping[str, SourceModule], project: ProjectPackages) -> bool:
    imported: set[str] = set()
    for module in used.values():
        imported.update(name.partition(".")[0] for name in module.imports)
    return any(project.hides(name) for name in imported)


def _functions_of(spec: KernelSpec) -> list[object]:
    """Return the functions that a kernel is declared with, without its implementations; some may be
    None.
    """
    return [
        spec.inputs,
        spec.reference,
        spec.flop_count,
        spec.memory_bytes,
        spec.bus_bytes,
        spec.token_count,
    ]


def _parts_of(spec: KernelSpec, suite: set[str], launch: object = None) -> list[ModulePart]:
    """Return what a kernel, or one implementation of it, uses of the modules that declare it; all
    modules if none does.
    """
    functions = _functions_of(spec)
    if launch is None:
        functions += [implementation.launch for implementation in spec.implementations.values()]
    else:
        functions.append(launch)
    defining = {str(getattr(function, "__module__", "")) for function in functions}
    parts: list[ModulePart] = []
    for name in suite:
        variables = _variables_with(spec, name)
        # a file may import a kernel of another
        if variables or name in defining:
            used = _top_level_names(functions, name)
            is_of_one = launch is not None and bool(variables)
            parts.append(
                ModulePart(
                    module=name,
                    kernels=variables,
                    functions=used,
                    is_of_implementation=is_of_one,
                )
            )
    return parts or [ModulePart(name) for name in suite]


def _top_level_names(functions: Iterable[object], module: str) -> frozenset[str]:
    """Names at the top of a module that functions belong to."""
    names: set[str] = set()
    for function in functions:
        if getattr(function, "__module__", "") != module:
            continue
        # Of a nested function, the top-level one around it.
        qualified_name = str(getattr(function, "__qualname__", ""))
        top_level_name = qualified_name.partition(".")[0]
        names.add(top_level_name)
    return frozenset(names)


def _variables_with(spec: KernelSpec, module: str) -> frozenset[str]:
    variables = vars(sys.modules[module])
    return frozenset(name for name, value in variables.items() if value is spec)


def _used_modules(start: Iterable[ModulePart], suite: set[str]) -> dict[str, SourceModule]:
    """Return the modules that some parts use, each as a whole if another module uses it."""
    used: dict[str, SourceModule] = {}
    whole: set[str] = set()
    waiting = [*start]
    only_imported: dict[str, None] = {}
    while waiting or only_imported:
        if waiting:
            part = waiting.pop()
        # last, as more of a module counts if it is used
        else:
            name, _ = only_imported.popitem()
            part = ModulePart(name, is_of_implementation=True)
        module = read_module(part)
        is_read_whole = part.module in whole
        is_read_in_part = part.module in used and not part.is_whole
        if module is None or is_read_whole or is_read_in_part:
            continue
        used[part.module] = module
        if part.is_whole:
            whole.add(part.module)
        names = [*module.imports, *packages_around(part.module)]
        # whatever it imports by a computed name may be any module
        if module.imports_dynamically:
            names.extend(suite)
        waiting += [ModulePart(name) for name in names]
        only_imported |= dict.fromkeys(module.other_imports)
    return used


def _digest(used: Mapping[str, SourceModule]) -> SourceDigest:
    """Digest the code, the data files and the environment variables of all modules."""
    # Digests do not depend on the order in which modules were found.
    modules = dict(sorted(used.items()))
    variables: dict[str, str | None] = {}
    for module in modules.values():
        variables.update({name: os.environ.get(name) for name in module.variables})
    codes = {name: module.code for name, module in modules.items()}
    host_codes = {name: module.host_code for name, module in modules.items()}
    data = {name: _data_digests(module) for name, module in modules.items()}
    return SourceDigest(
        everything=digest_of(codes, data, variables),
        host=digest_of(host_codes, data, variables),
    )


def _data_digests(module: SourceModule) -> list[tuple[str, str | None]]:
    return [(file.name, _cached_digest(file)) for file in module.data]


_cached_digest = cache(digest_of_file)
