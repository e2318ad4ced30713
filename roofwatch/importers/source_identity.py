"""Which sources an imported kernel uses at each commit: the files of its name, and what they
import. Read from git's objects; nothing is run.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Self

from roofwatch.collector.digests import digest_of
from roofwatch.collector.git import resolve_commit, run_git
from roofwatch.importers import FileImportError, ImportedRow, ImportedRun
from roofwatch.model.errors import GitError

_PYTHON = frozenset({".py"})
_COMPILED = frozenset(
    {".cu", ".cuh", ".h", ".hpp", ".c", ".cc", ".cpp", ".cxx", ".hip", ".inl", ".jl", ".rs"}
)
_NOT_SOURCES = re.compile(r"(^|/)(tests?|testing|docs?|examples?|benchmarks?|benches?|bench)/")
"""Folders whose files share a kernel's name without being used by it."""
_INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([^<>"]+)[>"]', re.MULTILINE)
_MODE = re.compile(r"[ /._-]?(forward|backward|fwd|bwd|full)\b.*", re.IGNORECASE)
"""End of a case's name that names no file."""
_ROOTS = frozenset({"src", "python", "lib"})
"""Folders that are often on Python's path."""
_MAX_BLOB_BYTES = 4 * 2**20


class Repository:
    """Commits of a repository as git stores them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._digests: dict[str, str] = {}
        self._imports: dict[tuple[str, str], tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["git", "-C", str(self._folder), "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def tree_at(self, revision: str) -> "SourceTree | None":
        """List the sources of a commit; None if the repository lacks it."""
        try:
            sha = resolve_commit(self._folder, revision)
        except GitError:
            return None
        listed = run_git(self._folder, "ls-tree", "-r", "-z", "--full-tree", sha)
        blobs: dict[str, str] = {}
        for line in filter(None, listed.split("\0")):
            facts, _, path = line.partition("\t")
            kind, blob = facts.split()[1:3]
            if kind == "blob" and PurePosixPath(path).suffix in _PYTHON | _COMPILED:
                blobs[path] = blob
        return SourceTree(self, blobs)

    def read(self, blob: str) -> bytes:
        """Read a file by its hash."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{blob}\n".encode())
        self._process.stdin.flush()
        size = int(self._process.stdout.readline().split()[2])
        content = self._process.stdout.read(size)
        self._process.stdout.read(1)  # git ends each with a line break
        return content[:_MAX_BLOB_BYTES]

    def digest(self, path: str, blob: str) -> str:
        """Digest a file; of Python the code, without comments and docstrings."""
        if blob not in self._digests:
            is_python = PurePosixPath(path).suffix in _PYTHON
            code = _parse(self.read(blob)) if is_python else None
            self._digests[blob] = blob if code is None else digest_of(ast.dump(_without_text(code)))
        return self._digests[blob]

    def imports(self, path: str, blob: str) -> tuple[str, ...]:
        """List what a file imports or includes, as dotted names or as file names."""
        if (path, blob) not in self._imports:
            content = self.read(blob)
            if PurePosixPath(path).suffix in _PYTHON:
                names = _imported_names(path, content)
            else:
                names = (name.decode(errors="replace") for name in _INCLUDE.findall(content))
            self._imports[path, blob] = tuple(dict.fromkeys(names))
        return self._imports[path, blob]


@dataclass(frozen=True)
class SourceTree:
    """The sources of one commit."""

    repository: Repository
    blobs: Mapping[str, str]
    """Hash by path."""
    _known: dict[str, str | None] = field(default_factory=dict)

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Path by dotted name, with and without the folders above the top package."""
        by_name: dict[str, str] = {}
        for path in sorted(self.blobs, key=lambda path: (len(path), path)):
            file = PurePosixPath(path)
            if file.suffix not in _PYTHON:
                continue
            parts = (
                file.parent.parts if file.stem == "__init__" else (*file.parent.parts, file.stem)
            )
            for start in range(len(parts)):
                is_on_path = start == 0 or "/".join(parts[:start]) in _ROOTS
                # a single word below other folders is more likely a module from elsewhere
                if is_on_path or len(parts) - start > 1:
                    by_name.setdefault(".".join(parts[start:]), path)
        return by_name

    @cached_property
    def _by_file_name(self) -> dict[str, list[str]]:
        by_name: dict[str, list[str]] = {}
        for path in self.blobs:
            by_name.setdefault(PurePosixPath(path).name, []).append(path)
        return by_name

    def identity_of(self, kernel: str) -> str | None:
        """Digest what a kernel uses; None if no file has its name."""
        if kernel not in self._known:
            begin = self._files_of(kernel)
            paths = sorted(self._closure(begin))
            digests = [self.repository.digest(path, self.blobs[path]) for path in paths]
            self._known[kernel] = digest_of(paths, digests) if paths else None
        return self._known[kernel]

    def _files_of(self, kernel: str) -> list[str]:
        """Find the files that are named like a kernel."""
        names = names_of(kernel)
        paths: list[str] = []
        for path in self.blobs:
            is_named = plain_name(PurePosixPath(path).stem) in names
            if is_named and not _NOT_SOURCES.search(path):
                paths.append(path)
        return paths

    def _closure(self, begin: Iterable[str]) -> set[str]:
        waiting, reached = list(begin), set(begin)
        while waiting:
            path = waiting.pop()
            for name in self.repository.imports(path, self.blobs[path]):
                for used in self._resolve(name):
                    if used not in reached:
                        reached.add(used)
                        waiting.append(used)
        return reached

    def _resolve(self, name: str) -> Iterator[str]:
        """Find the files behind an imported name: a module, what a module defines, or a header."""
        headers = self._by_file_name.get(PurePosixPath(name).name, [])
        yield from (path for path in headers if path.endswith(name.lstrip("./")))
        if name in self._modules:
            yield self._modules[name]
            return
        module, _, attribute = name.rpartition(".")
        if module not in self._modules:
            return
        path = self._modules[module]
        # of a package, only the module that the name comes from
        sources_of_name = [
            imported_name
            for imported_name in self.repository.imports(path, self.blobs[path])
            if imported_name.rpartition(".")[2] == attribute and imported_name != name
        ]
        if path.endswith("__init__.py") and sources_of_name:
            for imported_name in sources_of_name:
                yield from self._resolve(imported_name)
        else:
            yield path


def names_of(case: str) -> tuple[str, ...]:
    """List the names that a kernel may have, by the name of a case; the longest first."""
    words = _MODE.sub("", case).strip() or case
    first_word = (words.split() or [words])[0]
    return tuple(dict.fromkeys((plain_name(words), plain_name(first_word))))


def with_source_identity(
    run: ImportedRun, folder: Path, revision: str | None = None
) -> ImportedRun:
    """Give each row the digest of what its kernel uses at its commit.

    Args:
        run: Of one file.
        folder: In the repository.
        revision: The measured commit, in place of those that the file names.

    Raises:
        FileImportError: the repository has none of the commits.
    """

    def commit_of(row: ImportedRow) -> str:
        return revision or (row.commit or run.commit).sha or ""

    with Repository(folder) as repository:
        revisions = sorted({commit_of(row) for row in run.rows})
        trees = {sha: repository.tree_at(sha) for sha in revisions if sha}
        if not any(trees.values()):
            count = len(trees)
            raise FileImportError(f"{folder}: has none of the {count} commits of the results")
        rows: list[ImportedRow] = []
        for row in run.rows:
            tree = trees.get(commit_of(row))
            code_hash = None if tree is None else tree.identity_of(row.case)
            rows.append(replace(row, code_hash=code_hash))
    return replace(run, rows=tuple(rows))


def plain_name(name: str) -> str:
    """Return a name in lower case, with underscores between its words."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _parse(content: bytes) -> ast.Module | None:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _without_text(code: ast.Module) -> ast.Module:
    """Remove the docstrings, in place."""
    for node in ast.walk(code):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                node.body = rest
    return code


def _imported_names(path: str, content: bytes) -> Iterator[str]:
    """Read the dotted names that a Python file imports; relative ones from its own package."""
    code = _parse(content)
    if code is None:
        return
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(filter(None, (_package_above(path, node.level), base)))
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _package_above(path: str, level: int) -> str:
    """Return the dotted name of a file's package, or of one further up."""
    folders = PurePosixPath(path).parents
    return ".".join(folders[min(level, len(folders)) - 1].parts)
