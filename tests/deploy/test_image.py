"""The Dockerfile, checked without a container engine."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
INSTRUCTIONS = [tuple(line.split(maxsplit=1)) for line in TEXT.splitlines() if line.strip()]
CONTEXT = [
    line
    for line in (ROOT / ".dockerignore").read_text().splitlines()
    if line and not line.startswith("#")
]


def arguments_of(instruction: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def stages() -> dict[str, list[tuple[str, ...]]]:
    """The instructions of each stage by its name."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for instruction in INSTRUCTIONS:
        if instruction[0] == "FROM":
            found[instruction[1].split()[-1]] = []
        found[list(found)[-1]].append(instruction)
    return found


def test_every_stage_starts_from_an_image_with_an_exact_tag_and_the_last_is_the_service() -> None:
    images = {line.split()[0] for line in arguments_of("FROM")} - set(stages())

    assert images
    assert all(
        re.fullmatch(r"[a-z/]+:\d+\.\d+[a-z0-9.-]+(@sha256:[0-9a-f]{64})?", image)
        for image in images
    )
    assert list(stages())[-1] == "service", "what a build without a target makes"


@pytest.mark.parametrize("stage", ["service", "runner"])
def test_an_image_does_not_run_as_root(stage: str) -> None:
    instructions = stages()[stage]
    user = [rest for name, rest in instructions if name == "USER"][-1]

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert any(
        name == "RUN" and f"--uid {user.split(':')[0]} " in rest for name, rest in instructions
    )


def test_no_secret_is_built_in() -> None:
    kept = [*arguments_of("ENV"), *arguments_of("ARG"), *arguments_of("LABEL")]

    assert not [
        line for line in kept if re.search("PASSWORD|TOKEN|SECRET|KEY", line, re.IGNORECASE)
    ]
    assert arguments_of("ARG") == []


def test_the_extras_of_an_image_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = re.findall(r"\.whl\)\[([a-z,]+)\]", TEXT)

    assert len(installed) == 2
    assert {extra for extras in installed for extra in extras.split(",")} <= set(
        project["optional-dependencies"]
    )


def test_only_listed_files_reach_the_image() -> None:
    assert CONTEXT[0] == "*"
    assert all(line.startswith("!") for line in CONTEXT[1:-1])
    assert CONTEXT[-1] == "**/__pycache__"
