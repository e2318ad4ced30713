"""constraints.txt pins all requirements."""

import re
import tomllib
from importlib.metadata import distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.markdown import ROOT


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pinned.items()}


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    requirements = [Requirement(text) for group in (project["dependencies"], *extras) for text in group]
    return [each for each in requirements if each.name != "roofwatch"]  # an extra within another


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_declared_and_transitive_requirements_are_pinned(requirement: Requirement) -> None:
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
