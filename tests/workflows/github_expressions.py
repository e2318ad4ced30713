"""Expressions of GitHub Actions, evaluated by GitHub's own library in a process of node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

Values = dict[str, Any]
_FOLDER = Path(__file__).parent / "expressions"
_BUILD = Path(__file__).parents[2] / "build" / "expressions"


def _install() -> None:
    """Install the library in a folder of its own and rename it: other processes of the tests may
    do the same.
    """
    new = _BUILD.with_name(f"expressions-{os.getpid()}")
    shutil.copytree(_FOLDER, new, dirs_exist_ok=True)
    install = ["npm", "ci", "--no-audit", "--no-fund", "--silent"]
    if subprocess.run(install, cwd=new, check=False, capture_output=True).returncode:
        shutil.rmtree(new)
        pytest.skip("npm reaches no registry with @actions/expressions")
    try:
        new.rename(_BUILD)
    except OSError:  # another process was first
        shutil.rmtree(new)


@cache
def _process() -> subprocess.Popen[str]:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node is not installed, and evaluates expressions as GitHub does")
    if not (_BUILD / "node_modules").exists():
        _install()
    for file in _FOLDER.iterdir():
        shutil.copy(file, _BUILD / file.name)
    return subprocess.Popen(
        ["node", "evaluate.mjs"],
        cwd=_BUILD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _answer(text: str, contexts: Values, status: str) -> Values:
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    question = {"text": text.strip(), "contexts": contexts, "status": status}
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    answer: Values = json.loads(process.stdout.readline())
    assert "error" not in answer, f"{text}: {answer['error']}"
    return answer


def evaluate(text: str, contexts: Values, *, status: str = "success") -> Any:
    """Evaluate an expression without its braces, in a job with that status."""
    return _answer(text, contexts, status)["value"]


def fill(value: Any, contexts: Values) -> Any:
    """Replace the expressions in a value; a value that is one expression keeps its type."""
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\s*\$\{\{((?:(?!\}\}).)*)\}\}\s*", value, re.DOTALL)
    if whole:
        return evaluate(whole[1], contexts)
    return re.sub(
        r"\$\{\{(.*?)\}\}",
        lambda match: str(_answer(match[1], contexts, "success")["text"]),
        value,
        flags=re.DOTALL,
    )


def holds(condition: str | None, contexts: Values, *, status: str = "success") -> bool:
    """Return whether an `if` holds: without a function of the status, only after successes."""
    if condition is None:
        return status == "success"
    text = re.sub(r"^\s*\$\{\{|\}\}\s*$", "", str(condition))
    if not re.search(r"\b(always|cancelled|failure|success)\(", text):
        text = f"success() && ({text})"
    value = evaluate(text, contexts, status=status)
    return value not in (False, None, 0, "")
