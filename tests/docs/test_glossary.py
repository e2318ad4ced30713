"""The glossary names the classes of the domain, and no class name stands for two things."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.docs.markdown import REFERENCE, ROOT, table_under

GLOSSARY = REFERENCE / "glossary.md"
FOLDERS = ("api", "bench", "ci", "collector", "dashboard", "db", "kernels", "roofwatch")
DIFFERENCE = re.compile(r"\w*(Change|Comparison|Difference|Judgement|Move|Movement|Ratio)")


@cache
def modules_by_class() -> dict[str, set[str]]:
    """Modules that define a public class of each name."""
    modules: dict[str, set[str]] = defaultdict(set)
    # the folders beside roofwatch/ are also links inside it
    files = {file.resolve() for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")}
    for file in files:
        module = module_name(file)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].add(module)
    return modules


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT.resolve()).with_suffix("").parts
    if parts[0] not in {"roofwatch", "bench"}:
        parts = ("roofwatch", *parts)
    return ".".join(parts)


def known_exceptions() -> set[str]:
    _, _, text = GLOSSARY.read_text().partition("## Names with two meanings")
    return set(re.findall(r"`(\w+)`", text))


def test_each_noun_is_one_class_in_the_module_that_the_glossary_names() -> None:
    nouns = {name: module for name, module, _ in table_under(GLOSSARY, "Nouns of the code")}

    assert {name: modules_by_class()[name] for name in nouns} == {
        name: {module} for name, module in nouns.items()
    }


def test_no_new_class_name_stands_for_two_things() -> None:
    repeated = {name for name, modules in modules_by_class().items() if len(modules) > 1}

    assert sorted(repeated - known_exceptions()) == []


def test_no_new_class_stands_for_a_difference() -> None:
    listed = {
        name
        for names, _ in table_under(GLOSSARY, "Classes for a difference")
        for name in names.split(", ")
    }
    in_code = set(filter(DIFFERENCE.fullmatch, modules_by_class()))

    assert sorted(in_code - listed) == []
