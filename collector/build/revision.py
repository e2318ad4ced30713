"""Check out a suite at another commit, and prepare it for measuring."""

import ast
import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from roofwatch.collector.build.prepare import prepare_suite
from roofwatch.collector.build.submodules import fill_submodules
from roofwatch.collector.git import checked_out, find_repository, project_of, read_commit
from roofwatch.collector.suite import CAPTURE_HEADER, SuiteAt, benchmark_files
from roofwatch.model.errors import GitError, SuiteError
from roofwatch.model.suite_source import SuiteSource

_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")


@contextlib.contextmanager
def suite_at_revision(
    path: Path | None,
    revision: str,
    *,
    project: str | None = None,
    benchmarks: Path | None = None,
) -> Iterator[SuiteAt]:
    """Check out a revision in a temporary folder, and return the same suite in it. A captured file
    stays as it is now.

    Without a path it is the bundled suite, measured by this version. `benchmarks` is the suite at
    the head, whose files are used as far as `replace_benchmarks` allows.

    Raises:
        GitError: the path is not in a repository, or the revision is unknown.
        SuiteError: the suite does not exist or cannot be measured there; file names are relative to
        the checkout.
    """
    measured = (path or Path(__file__)).resolve()
    repository = find_repository(measured)
    if repository is None:
        raise GitError(f"{measured}: is in no git repository, so it has no revision {revision!r}")
    with (
        tempfile.TemporaryDirectory(prefix="roofwatch-suite-") as folder,
        checked_out(repository, revision, Path(folder) / "suite") as work_tree,
    ):
        try:
            # the bundled suite has no folder in the checkout
            if path is None:
                yield SuiteAt(
                    source=SuiteSource(None, (work_tree,)),
                    commit=read_commit(work_tree),
                    project="roofwatch",
                )
                return
            commit = read_commit(work_tree)
            name = measured.relative_to(repository.resolve())
            fill_submodules(repository, commit.sha, work_tree)
            then = work_tree / name
            has_own = then.exists()
            is_replaced = False
            if measured.is_file() and measured.read_text(errors="replace").startswith(
                CAPTURE_HEADER
            ):
                then.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(measured, then)
            elif benchmarks is not None:
                # files of the head, so that both sides measure the same cases
                is_replaced = replace_benchmarks(then, benchmarks)
            if not then.exists():
                hint = "; commit it first" if measured.exists() else ""
                raise SuiteError(f"{name}: missing at {revision}{hint}")
            source = prepare_suite(then, work_tree, repository)
            yield SuiteAt(
                source=source,
                commit=commit,
                project=project or project_of(repository),
                is_replaced=is_replaced,
                has_own=has_own,
            )
        except SuiteError as error:
            message = str(error).replace(f"{work_tree}/", "")
            error.args = (message + _untracked_hint(message, measured.parent, work_tree),)
            raise


def _untracked_hint(message: str, folder: Path, work_tree: Path) -> str:
    """What to do about a module that is missing in a checkout and lies beside the suite now."""
    missing = _MISSING_MODULE.search(message)
    if missing is None:
        return ""
    name = f"{missing[1].replace('.', '/')}.py"
    if not (folder / name).is_file() or any(work_tree.rglob(name)):
        return ""
    return f"; {name} is not in that commit: commit it, or put its code into the benchmark file"


# --- the head's benchmark files at another commit


def replace_benchmarks(checkout: Path, heads: Path) -> bool:
    """Replace the benchmark files of a checkout by those of the head; return whether any file
    changed.

    Files with code that the head changed or removed stay, as does a folder with a file that the
    head lacks. Otherwise both sides would run the head's code, and its change would not be
    measured.
    """
    old = _files_by_name(checkout)
    new = _files_by_name(heads)
    if old.keys() - new.keys():
        return False
    is_replaced = False
    for name, file in new.items():
        if name not in old or (
            old[name].read_bytes() != file.read_bytes() and _code_of(old[name]) <= _code_of(file)
        ):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, checkout / name)
            is_replaced = True
    return is_replaced


def _files_by_name(suite: Path) -> dict[Path, Path]:
    with contextlib.suppress(SuiteError):
        return {file.relative_to(suite): file for file in benchmark_files(suite)}
    return {}


def _code_of(file: Path) -> set[str]:
    """Return the syntax tree of each statement of a benchmark file that does not declare a
    kernel.
    """
    try:
        statements = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError):
        return set()
    return {
        ast.dump(node)
        for node in statements
        if not (isinstance(node, ast.Assign) and "KernelSpec(" in ast.unparse(node.value))
    }
