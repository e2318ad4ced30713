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
# Generated sources may be larger; their beginning tells them apart.
_MAX_BLOB_BYTES = 4 * 2**20


class Repository:
    """Commits of a repository as git stores them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._digests: dict[str, str] = {}
        self._imports: dict[tuple[str, str], tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        # One process for all files: git takes milliseconds to start.
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
            # `100644 blob <hash>\t<path>`
            facts, _, path = line.partition("\t")
            _mode, kind, blob = facts.split()
            suffix = PurePosixPath(path).suffix
            if kind == "blob" and (suffix in _PYTHON or suffix in _COMPILED):
                blobs[path] = blob
        return SourceTree(self, blobs)

    def read(self, blob: str) -> bytes:
        """Read a file by its hash."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{blob}\n".encode())
        process.stdin.flush()
        # `<hash> blob <size>`
        size = int(process.stdout.readline().split()[2])
        content = process.stdout.read(size)
        process.stdout.read(1)  # git ends each with a line break
        return content[:_MAX_BLOB_BYTES]

    def digest(self, path: str, blob: str) -> str:
        """Digest a file; of Python the code, without comments and docstrings."""
        if blob not in self._digests:
            self._digests[blob] = self._digest_of_code(path, blob)
        return self._digests[blob]

    def _digest_of_code(self, path: str, blob: str) -> str:
        code = None
        if PurePosixPath(path).suffix in _PYTHON:
            code = _parse(self.read(blob))
        # The hash of git is a digest of the whole file.
        if code is None:
            return blob
        return digest_of(ast.dump(_without_text(code)))

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
        # The shortest path first: a copy in a deeper folder does not hide it.
        for path in sorted(self.blobs, key=lambda path: (len(path), path)):
            file = PurePosixPath(path)
            if file.suffix not in _PYTHON:
                continue
            if file.stem == "__init__":
                parts = file.parent.parts
            else:
                parts = (*file.parent.parts, file.stem)
            for start in range(len(parts)):
                is_on_path = start == 0 or "/".join(parts[:start]) in _ROOTS
                # A single word below other folders is more likely a module from elsewhere.
                is_qualified = len(parts) - start > 1
                if is_on_path or is_qualified:
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
        waiting = list(begin)
        reached = set(begin)
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
        # Headers are found by the end of their path, whatever the include path is.
        headers = self._by_file_name.get(PurePosixPath(name).name, [])
        yield from (path for path in headers if path.endswith(name.lstrip("./")))
        if name in self._modules:
            yield self._modules[name]
            return
        module, _, attribute = name.rpartition(".")
        if module not in self._modules:
            return
        path = self._modules[module]
        # Of a package, only the module that the name comes from.
        sources_of_name: list[str] = []
        if path.endswith("__init__.py"):
            imports = self.repository.imports(path, self.blobs[path])
            named = [imported for imported in imports if imported.rpartition(".")[2] == attribute]
            sources_of_name = [imported for imported in named if imported != name]
        for imported_name in sources_of_name:
            yield from self._resolve(imported_name)
        if not sources_of_name:
            yield path


def names_of(case: str) -> tuple[str, ...]:
    """List the names that a kernel may have, by the name of a case; the longest first."""
    # `rms_norm forward [n=4096]` may be `rms_norm.py` or `rms_norm_forward.py`.
    words = _MODE.sub("", case).strip() or case
    first_word = (words.split() or [words])[0]
    return tuple(dict.fromkeys((plain_name(words), plain_name(first_word))))


def with_source_identity(
    run: ImportedRun,
    folder: Path,
    revision: str | None = None,
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
        # probably another repository
        if not any(trees.values()):
            count = len(trees)
            raise FileImportError(f"{folder}: has none of the {count} commits of the results")
        rows: list[ImportedRow] = []
        for row in run.rows:
            tree = trees.get(commit_of(row))
            code_hash = None
            if tree is not None:
                code_hash = tree.identity_of(row.case)
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
            # a dot counts packages upwards
            if node.level:
                above = _package_above(path, node.level)
                base = ".".join(filter(None, (above, base)))
            for alias in node.names:
                yield f"{base}.{alias.name}" if base else alias.name


def _package_above(path: str, level: int) -> str:
    """Return the dotted name of a file's package, or of one further up."""
    folders = PurePosixPath(path).parents
    # A level beyond the root is an error of the file; the root is the best guess.
    position = min(level, len(folders)) - 1
    return ".".join(folders[position].parts)
