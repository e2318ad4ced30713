"""Commands in documents and in messages of the code are valid."""

import ast
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.command_line import UnknownCommandError, check_line, commands, verbs
from tests.docs.markdown import DOCUMENTS, ROOT, code_spans, name_of, shell_lines, table_under

PACKAGES = ("api", "ci", "collector", "dashboard", "db", "kernels", "roofwatch")
NAMES = {*commands(), *(name.partition(" ")[0] for name in commands())}
"""Commands and groups of commands."""
SHOWN = [(name_of(document), line) for document in DOCUMENTS for line in shell_lines(document)]
NAMED = [
    (name_of(document), span)
    for document in DOCUMENTS
    for span in code_spans(document)
    if span.startswith(("make ", "roofwatch ", "python -m pytest"))
]


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_a_command_in_a_block_is_known(document: str, line: str) -> None:
    check_line(line)


@pytest.mark.parametrize(("document", "line"), sorted(set(NAMED)))
def test_a_command_in_the_text_is_known(document: str, line: str) -> None:
    # a command that is only named has none of the arguments that it needs
    if line not in {
        "roofwatch --help",
        "roofwatch --debug",
        *(f"roofwatch {name}" for name in NAMES),
    }:
        check_line(line)


@pytest.mark.parametrize(
    "line",
    [
        "make tea",
        "make demo SERVICE=0",
        "roofwatch measure",
        "roofwatch run --fast",
        "roofwatch compare base.json",
        "roofwatch db drop",
        "python -m pytest tests/gone",
        "docker compose run --rm api serve",
        "docker compose exec api roofwatch db drop",
        "docker compose fly",
        "cargo build",
        "true | make tea",
    ],
)
def test_invalid_commands_are_noticed(line: str) -> None:
    with pytest.raises(UnknownCommandError):
        check_line(line)


def named_in(file: Path) -> Iterator[str]:
    """Commands that texts of the code name, with the word that follows: `` `roofwatch db status`
    ``.
    """
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"(?:`|: )roofwatch ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", node.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_commands_in_messages_of_the_code_exist(package: str) -> None:
    leaves = set(commands())
    named = {name for file in (ROOT / package).rglob("*.py") for name in named_in(file)}

    assert {
        name for name in named if name not in NAMES and name.partition(" ")[0] not in leaves
    } == set()


def test_the_list_of_verbs_is_complete() -> None:
    assert [
        row[0].removeprefix("make ") for row in table_under(ROOT / "CONTRIBUTING.md", "Set-up")
    ] == [verb for verb in verbs() if verb != "help"]


def test_the_makefile_makes_passwords_that_only_this_user_can_reach(tmp_path: Path) -> None:
    subprocess.run(
        ["make", "--file", ROOT / "Makefile", "secrets/postgres_password"], check=True, cwd=tmp_path
    )

    file = tmp_path / "secrets" / "postgres_password"
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert re.fullmatch(r"[\w-]{32}\n", file.read_text())
