"""What CONTRIBUTING.md says about the schema and the constraints."""

import re
import shutil
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from roofwatch.db.engine import migrate
from tests.docs.markdown import ROOT, fences

SNIPPET = next(fence.text for fence in fences(ROOT / "CONTRIBUTING.md") if fence.language == "python")


def test_the_snippet_writes_a_revision_that_changes_nothing_as_long_as_the_models_have_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_head = migrate.head_revision()
    migrations = tmp_path / "migrations"
    shutil.copytree(ROOT / "db" / "migrations", migrations)
    monkeypatch.setattr(migrate, "_MIGRATIONS", migrations)
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", str(tmp_path / "data"))

    exec(compile(SNIPPET, "CONTRIBUTING.md", "exec"), {})  # noqa: S102  the very text that a reader would run

    (written,) = {file.name for file in migrations.glob("versions/*.py")} - {
        file.name for file in (ROOT / "db" / "migrations" / "versions").glob("*.py")
    }
    text = (migrations / "versions" / written).read_text()
    assert re.search(rf"down_revision.* = ['\"]{migrate_head}['\"]", text)
    assert "op." not in text


# `name` of `file.py`, also where several names stand before it
REFERENCE = re.compile(r"((?:`\w+`(?:, | and | or )?)+) (?:of|in)\s+`([\w/]+\.py)`")
NAMED = sorted(
    {
        (name, file)
        for names, file in REFERENCE.findall((ROOT / "CONTRIBUTING.md").read_text())
        for name in re.findall(r"`(\w+)`", names)
    }
)


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_what_the_guide_says_is_in_a_file_is_declared_there(name: str, file: str) -> None:
    declaration = rf"(?m)^\s*(?:def |class )?{name}\b(?:\(|:| =)"

    assert re.search(declaration, (ROOT / file).read_text())


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pinned.items()}


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(text) for group in (project["dependencies"], *extras) for text in group]


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_what_is_declared_is_pinned_within_its_range_and_so_is_all_that_it_brings(requirement: Requirement) -> None:
    pinned = constraints()
    waiting, seen = [requirement], set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen:
            continue
        seen.add(name)
        assert name in pinned, f"{requirement.name} brings {name}, which constraints.txt does not pin"
        assert wanted.specifier.contains(pinned[name], prereleases=True), f"{name}=={pinned[name]} is not {wanted}"
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            environments = [{"extra": extra} for extra in (wanted.extras or {""})]
            is_wanted = needed.marker is None or any(needed.marker.evaluate(chosen) for chosen in environments)
            # torch's build for CUDA brings libraries that the build for CPUs, which was pinned, does not
            if is_wanted and not (name == "torch" and needed.name.startswith(("nvidia-", "cuda-"))):
                waiting.append(needed)


def test_torch_and_triton_are_the_versions_that_contributing_names() -> None:
    named = dict(re.findall(r"\b(torch|triton)==([\d.]+)", (ROOT / "CONTRIBUTING.md").read_text()))

    assert named == {name: constraints()[name] for name in ("torch", "triton")}
