"""Print hints on sizes that deserve a thought: density of code, words of documents, quick subjects.

    python bench/size_hints.py

`make lint` prints them; they never fail.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

# A kernel has formulas and index arithmetic in a line.
MAX_NODES_PER_LINE = {"kernels": 8.0}
DEFAULT_NODES_PER_LINE = 6.5
DOCUMENTATION_WORDS = 30_000
# Three blocks each of preset `survey` take two minutes of one GPU; checks and compilation take
# longer than that, which `python -m bench.gpu_rehearsal` estimates.
TIMED_QUICK_SUBJECTS = 190


def _tracked(pattern: str) -> list[Path]:
    command = ["git", "ls-files", "--", pattern]
    listed = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.splitlines()]


def density_hints() -> Iterator[str]:
    """Folders whose average line holds more than a reader takes in at once."""
    n_nodes: dict[str, int] = {}
    n_lines: dict[str, int] = {}
    for file in _tracked("*.py"):
        source = file.read_text()
        folder = file.relative_to(ROOT).parts[0]
        node_count = sum(1 for _ in ast.walk(ast.parse(source)))
        line_count = sum(bool(line.strip()) for line in source.splitlines())
        n_nodes[folder] = n_nodes.get(folder, 0) + node_count
        n_lines[folder] = n_lines.get(folder, 0) + line_count
    for folder, node_count in n_nodes.items():
        nodes_per_line = node_count / max(n_lines[folder], 1)
        limit = MAX_NODES_PER_LINE.get(folder, DEFAULT_NODES_PER_LINE)
        # tests repeat values on purpose
        if folder != "tests" and nodes_per_line > limit:
            yield (
                f"{folder}/ has {nodes_per_line:.1f} syntax nodes a line, more than {limit}: "
                "remove what is not needed, then write one idea a statement"
            )


def documentation_hints() -> Iterator[str]:
    """All documents together, the changelog excepted: every release adds to it."""
    n_words: dict[Path, int] = {}
    for page in [*_tracked(":(glob)*.md"), *_tracked("docs/*.md")]:
        if page.name != "CHANGELOG.md":
            n_words[page] = len(page.read_text().split())
    total = sum(n_words.values())
    if total > DOCUMENTATION_WORDS:
        longest = max(n_words, key=n_words.__getitem__).relative_to(ROOT)
        yield (
            f"the documents have {total:,} words, more than {DOCUMENTATION_WORDS:,}: shorten or "
            f"join pages, for example {longest}, before you add another"
        )


def quick_suite_hints() -> Iterator[str]:
    """More subjects would take a GPU longer than two minutes of blocks for each pull request."""
    from roofwatch.kernels.registry import single_kernels

    n_subjects = 0
    for spec in single_kernels():
        quick_cases = [case for case in spec.cases if "quick" in case.tags]
        for case in quick_cases:
            for implementation in spec.implementations.values():
                n_subjects += case.direction in implementation.directions
    if n_subjects > TIMED_QUICK_SUBJECTS:
        yield (
            f"the quick suite times {n_subjects} subjects, more than {TIMED_QUICK_SUBJECTS}: give "
            "a kernel fewer shapes tagged `quick`, or tag them `full`"
        )


def main() -> None:
    """Print all hints."""
    for hints in (density_hints, documentation_hints, quick_suite_hints):
        for hint in hints():
            print(f"hint: {hint}")


if __name__ == "__main__":
    main()
