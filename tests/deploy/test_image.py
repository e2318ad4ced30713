"""The Dockerfile, checked without a container engine."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
INSTRUCTIONS = [tuple(line.split(maxsplit=1)) for line in TEXT.splitlines() if line.strip()]
CONTEXT = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


def arguments_of(instruction: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def test_every_stage_starts_from_one_image_with_an_exact_tag() -> None:
    images = {line.split()[0] for line in arguments_of("FROM")}

    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", images.pop())


def test_the_service_does_not_run_as_root() -> None:
    user = arguments_of("USER")[-1]

    assert INSTRUCTIONS.index(("USER", user)) > max(
        index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM"
    )
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert f"--uid {user.split(':')[0]} " in TEXT


def test_no_secret_is_built_in() -> None:
    kept = [*arguments_of("ENV"), *arguments_of("ARG"), *arguments_of("LABEL")]

    assert not [line for line in kept if re.search("PASSWORD|TOKEN|SECRET|KEY", line, re.IGNORECASE)]
    assert arguments_of("ARG") == ['PIP_EXTRA_INDEX_URL=""']


def test_only_listed_files_reach_the_image() -> None:
    assert CONTEXT[0] == "*"
    assert all(line.startswith("!") for line in CONTEXT[1:-1])
    assert CONTEXT[-1] == "**/__pycache__"
