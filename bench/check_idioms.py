"""Refuse idioms that save lines and cost readers; CONTRIBUTING.md has the rules.

    python bench/check_idioms.py [FOLDER...]

Without folders, all code is checked except what NOT_YET_CLEAN lists.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType

ROOT = Path(__file__).parents[1]

NOT_YET_CLEAN = (
    "db/queries/questions.py",
    "tests/",
)
"""Path prefixes that are not checked yet. The list only shrinks."""

_VAGUE_NAMES = """
    asked at each found given kept known left meant one own place shown such those told wanted what
"""
VAGUE_NAMES = frozenset(_VAGUE_NAMES.split())
"""Names that stand for anything; a local or parameter is named after its quantity."""

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
MAX_CLAUSES = 2


@dataclass(frozen=True, order=True)
class PackedIdiom:
    """An idiom to unpack, and how."""

    line: int
    advice: str


def problems_of(tree: ast.AST) -> Iterator[PackedIdiom]:
    """All problems of a file, in no order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp) and _contains(node, ast.IfExp):
            yield PackedIdiom(node.lineno, "nested ternary: write `if` statements")
        elif isinstance(node, Comprehension):
            yield from _problems_of_comprehension(node)
        elif isinstance(node, ast.Starred):
            # a splat of a value with a name is fine
            if isinstance(node.value, ast.Tuple | ast.List):
                yield PackedIdiom(node.lineno, "literal splat: write the values, one a line")
        elif isinstance(node, ast.stmt):
            yield from _problems_of_statement(node)
    for name, line in _bound_names(tree):
        if name in VAGUE_NAMES:
            yield PackedIdiom(line, f"name `{name}`: name it after its quantity")


def _problems_of_comprehension(node: Comprehension) -> Iterator[PackedIdiom]:
    """A comprehension has one `for` and at most one `if`."""
    if _contains(node, Comprehension):
        advice = "comprehension in a comprehension: write a loop or a function"
        yield PackedIdiom(node.lineno, advice)
    n_conditions = sum(len(clause.ifs) for clause in node.generators)
    # a condition is a clause too: readers take in both
    if len(node.generators) + n_conditions > MAX_CLAUSES:
        advice = "comprehension with three clauses: write a loop or a function"
        yield PackedIdiom(node.lineno, advice)


def _problems_of_statement(node: ast.stmt) -> Iterator[PackedIdiom]:
    """A statement has at most one walrus."""
    for expression in ast.iter_child_nodes(node):
        if not isinstance(expression, ast.expr):
            continue
        walruses = [inner for inner in ast.walk(expression) if isinstance(inner, ast.NamedExpr)]
        if len(walruses) > 1:
            yield PackedIdiom(expression.lineno, "two walruses in an expression: assign first")


def _contains(outer: ast.AST, kind: type[ast.AST] | UnionType) -> bool:
    return any(isinstance(node, kind) for node in ast.walk(outer) if node is not outer)


def _bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Locals and parameters; fields of a class may be part of a stored format."""
    fields: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.AnnAssign):
                    fields.add(child.target)
        elif isinstance(node, ast.Name):
            is_bound = isinstance(node.ctx, ast.Store)
            if is_bound and node not in fields:
                yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name is not None:
            yield node.name, node.lineno


def _tracked_files(folders: list[str]) -> list[Path]:
    """Python files that git tracks, below folders or everywhere that is checked."""
    command = ["git", "ls-files", "--", *(folders or ["*.py"])]
    listed = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [name for name in listed.splitlines() if name.endswith(".py")]
    if not folders:
        names = [name for name in names if not name.startswith(NOT_YET_CLEAN)]
    return [ROOT / name for name in names]


def main(folders: list[str]) -> int:
    """Print all problems; exit status 1 if there are any."""
    n_problems = 0
    files = _tracked_files(folders)
    for file in files:
        for problem in sorted(problems_of(ast.parse(file.read_text()))):
            path = file.relative_to(ROOT)
            print(f"{path}:{problem.line}: {problem.advice}")
            n_problems += 1
    if n_problems == 0:
        print(f"idioms: no problem found in {len(files)} files")
    return min(n_problems, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
