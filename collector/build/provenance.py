"""Find the modules and shared libraries of the measured project that a process has loaded.

A file belongs to the project if it lies in the commit's tree or build, or in the user's checkout,
if the tree has its module, or if an installation of one of the tree's distributions has it. Nothing
is guessed from names: a module that only resembles one of the project does not belong to it.
"""

import importlib.metadata
import json
import os
import sys
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofwatch.collector.digests import digest_of_file
from roofwatch.model.provenance import ForeignCodeError, LoadedFile, Origin
from roofwatch.model.suite_source import SuiteSource
from roofwatch.model.worker_protocol import LoadedModule

_HARNESS = frozenset({"roofwatch", "__main__", "__mp_main__"})
"""Our own code, and the program that started the worker."""
_INSTALLED = ("site-packages", "dist-packages")
"""The second is Debian's."""
_MAPS = Path("/proc/self/maps")


class ProjectFiles:
    """Reports each file of a suite's project once, in the process that loads them."""

    def __init__(self, source: SuiteSource, preloaded: Iterable[str]) -> None:
        """`preloaded` names the modules that were loaded before the suite."""
        self._source = source
        self._preloaded = {name.partition(".")[0] for name in preloaded}
        self._root = None
        if source.root is not None:
            self._root = _with_slash(source.root)
        self._work_tree = None
        if source.work_tree is not None:
            self._work_tree = _with_slash(source.work_tree)
        self._builds = tuple(_with_slash(build) for build in source.builds)
        self._jit = _with_slash(_jit_folder())
        # other folders would show code that shadows the suite's own
        self._folders = [*source.import_roots, *source.other_folders]
        self._names: set[str] = set()
        for folder in self._folders:
            self._names |= _names_in(folder)
        self._installations = _installations(source)
        self._seen_modules: set[str] = set()
        self._seen_files: set[str] = set()

    def take_new(self) -> tuple[LoadedModule, ...]:
        """Return what was loaded since the last call."""
        # A suite without a tree has no commit whose code could be proved.
        if self._root is None or self._source.path is None:
            return ()
        return (*self._new_modules(), *self._new_libraries())

    def _new_modules(self) -> Iterator[LoadedModule]:
        """Modules imported since the last look that the project has, wherever they lie."""
        for name in sys.modules.keys() - self._seen_modules:
            self._seen_modules.add(name)
            top = name.partition(".")[0]
            if top in _HARNESS or top in sys.stdlib_module_names:
                continue
            file = getattr(sys.modules.get(name), "__file__", None)
            if not isinstance(file, str):
                continue
            origin = self._origin(file)
            if origin is None and top in self._names and self._is_project_module(name):
                # The tree has this module, and the process took it from somewhere else.
                if _is_installed(file):
                    origin = Origin.INSTALLED
                else:
                    origin = Origin.ELSEWHERE
            if origin is not None:
                yield from self._once(name, file, origin)

    def _new_libraries(self) -> Iterator[LoadedModule]:
        """Shared libraries of the project mapped since the last look."""
        for file in _mapped_libraries():
            if file in self._seen_files:
                continue
            origin = self._origin(file)
            if origin is not None:
                name = os.path.basename(file)  # noqa: PTH119  quick
                yield from self._once(name, file, origin)

    def _once(self, name: str, file: str, origin: Origin) -> Iterator[LoadedModule]:
        """Describe a file the first time it is seen."""
        if file in self._seen_files:
            return
        self._seen_files.add(file)
        try:
            status = os.stat(file)  # noqa: PTH116  quick
        except OSError:
            return
        yield LoadedModule(
            module=name,
            file=file,
            origin=origin,
            size_bytes=status.st_size,
            modified_ns=status.st_mtime_ns,
        )

    def _origin(self, file: str) -> Origin | None:
        """Where a file of the project lies; None if its place does not tell that it belongs to
        it.
        """
        if file.startswith(self._builds):
            return Origin.BUILD
        if _is_installed(file):
            if file in self._installations.files:
                return Origin.INSTALLED
            return None
        if self._root is not None and file.startswith(self._root):
            return Origin.TREE
        if self._work_tree is not None and file.startswith(self._work_tree):
            return Origin.WORK_TREE
        # A module that is not installed, of an editable installation.
        is_elsewhere = file in self._installations.files
        if is_elsewhere or file.startswith(self._installations.folders):
            return Origin.ELSEWHERE
        if file.startswith(self._jit):
            return Origin.JIT
        return None

    def _is_project_module(self, name: str) -> bool:
        """Whether the tree has a module that was loaded from elsewhere.

        Of what the harness itself needs, such as Triton, it does only if a distribution of the
        tree says so: a folder `triton` with kernels is not Triton.
        """
        is_needed_here = name.partition(".")[0] in self._preloaded
        folders: Sequence[Path] = self._folders
        if is_needed_here:
            folders = self._source.package_folders
        path = name.replace(".", os.sep)
        return any(
            os.path.exists(f"{folder}/{path}{ending}")  # noqa: PTH110  quick
            for folder in folders
            for ending in (".py", "/__init__.py")
        )


def _with_slash(folder: Path) -> str:
    return f"{folder.resolve()}/"


def _jit_folder() -> Path:
    """Where torch puts extensions that it compiles at import."""
    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    if chosen:
        return Path(chosen)
    return Path.home() / ".cache" / "torch_extensions"


def _names_in(folder: Path) -> set[str]:
    """First parts of the names of everything importable from a folder."""
    try:
        return {entry.partition(".")[0] for entry in os.listdir(folder)}  # noqa: PTH208  quick
    except OSError:
        return set()


def _is_installed(file: str) -> bool:
    if any(f"/{folder}/" in file for folder in _INSTALLED):
        return True
    # Python's own library, with and without a virtual environment.
    return file.startswith((f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"))


def _mapped_libraries() -> set[str]:
    """Paths of the shared libraries in this process."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:  # not Linux
        return set()
    # A line ends with the path of what is mapped, if that is a file.
    libraries: set[str] = set()
    for line in lines:
        if ".so" in line and "/" in line:
            libraries.add(line[line.index("/") :])
    return libraries


def installed_names(source: SuiteSource) -> frozenset[str]:
    """First parts of the names of what the tree's distributions have installed, and of packages of
    the tree that are not on the import path.
    """
    names: set[str] = set()
    for folder in source.other_folders:
        names |= _names_in(folder)
    for file in _installations(source).files:
        for installed in _INSTALLED:
            _, separator, path = file.partition(f"/{installed}/")
            if separator:
                # `name.py`, or `name/__init__.py`
                top = path.partition("/")[0]
                names.add(top.partition(".")[0])
    return frozenset(names)


@dataclass(frozen=True)
class _Installations:
    """Of the tree's distributions, outside the tree."""

    files: frozenset[str]
    """Modules and libraries."""
    folders: tuple[str, ...]
    """Source folders of editable ones."""


def _installations(source: SuiteSource) -> _Installations:
    """Where other installations of the suite's distributions lie, which would hide the tree."""
    files: set[str] = set()
    folders: list[str] = []
    folders_of_tree = (*source.import_roots, *source.builds)
    in_tree = tuple(map(_with_slash, folders_of_tree))
    for name in source.distributions:
        for distribution in importlib.metadata.distributions(name=name):
            # What lies in the tree itself is the measured code.
            location = _with_slash(Path(str(distribution.locate_file(""))))
            if location.startswith(in_tree):
                continue
            for entry in distribution.files or ():
                if entry.suffix in {".py", ".so"}:
                    files.add(os.path.normpath(os.fspath(entry.locate())))
            editable = _editable_folder(distribution)
            if editable is not None:
                folders.append(_with_slash(editable))
    return _Installations(frozenset(files), tuple(folders))


def _editable_folder(distribution: importlib.metadata.Distribution) -> Path | None:
    """The folder of an editable installation; None for another one."""
    try:
        # PEP 610 names this file.
        document = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    url = urllib.parse.urlsplit(str(document.get("url", "")))
    is_editable = bool(document.get("dir_info", {}).get("editable"))
    if url.scheme != "file" or not is_editable:
        return None
    return Path(urllib.parse.unquote(url.path)).resolve()


# --- in the collector


def require_own_code(source: SuiteSource, modules: Iterable[LoadedModule]) -> None:
    """Refuse what workers have found out if the code is not that of the tree.

    Raises:
        ForeignCodeError: they have loaded a file of the project from elsewhere.
    """
    provenance = Provenance(source)
    provenance.add(module for module in modules if module.origin.is_foreign)
    if provenance.foreign is not None:
        raise ForeignCodeError(provenance.foreign)


@dataclass(frozen=True)
class _Version:
    file: str
    size_bytes: int
    modified_ns: int


class Provenance:
    """The files of a suite's project that its workers loaded, each with its digest."""

    def __init__(self, source: SuiteSource) -> None:
        places = {
            Origin.TREE: [source.root],
            Origin.BUILD: source.builds,
            Origin.WORK_TREE: [source.work_tree],
        }
        self._folders: dict[Origin, list[str]] = {}
        for origin, folders in places.items():
            self._folders[origin] = [_with_slash(folder) for folder in folders if folder]
        self.files: dict[str, LoadedFile] = {}
        """By origin, path and digest."""
        self._digested: set[_Version] = set()

    @property
    def listed(self) -> tuple[LoadedFile, ...]:
        """All files, those of other commits first."""

        def order(file: LoadedFile) -> tuple[bool, str]:
            return not file.origin.is_foreign, file.path

        return tuple(sorted(self.files.values(), key=order))

    @property
    def foreign(self) -> LoadedFile | None:
        """The first file that is not of the commit; None without one."""
        for file in self.listed:
            if file.origin.is_foreign:
                return file
        return None

    def add(self, modules: Iterable[LoadedModule]) -> tuple[LoadedFile, ...]:
        """Digest what is new, and return it."""
        new: list[LoadedFile] = []
        for module in modules:
            # Each worker reports the same files; a digest is needed once.
            version = _Version(
                file=module.file,
                size_bytes=module.size_bytes,
                modified_ns=module.modified_ns,
            )
            if version in self._digested:
                continue
            self._digested.add(version)
            file = LoadedFile(
                module=module.module[:500],
                path=self._relative(module)[-1_000:],
                origin=module.origin,
                sha256=digest_of_file(module.file),
            )
            new.append(file)
        self.restore(new)
        return tuple(new)

    def restore(self, files: Iterable[LoadedFile]) -> None:
        """Add files that an earlier process of the run has digested."""
        for file in files:
            self.files[f"{file.origin}:{file.path}:{file.sha256}"] = file

    def _relative(self, module: LoadedModule) -> str:
        """The path of a file as it is on every machine: below its root, or below site-packages."""
        for folder in self._folders.get(module.origin, ()):
            if module.file.startswith(folder):
                return module.file.removeprefix(folder)
        for name in _INSTALLED:
            _, separator, path = module.file.rpartition(f"/{name}/")
            if separator:
                return f"{name}/{path}"
        # The part that is the module's name; more would tell where on this machine it lies.
        part_count = 1 + len(module.module.split("."))
        return "/".join(Path(module.file).parts[-part_count:])
