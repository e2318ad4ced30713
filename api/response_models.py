"""What the routes take and give, beyond the values of the store."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field, StringConstraints

from roofwatch.ci.ab.noise_floor import NoiseFloor
from roofwatch.db.auth.values import Triage, TriageState
from roofwatch.db.values import Regression

RUN_ID = "0b9c6c8e-9a1e-4a0e-8f6e-2f1c1c0a7d11"
OTHER_RUN_ID = "3d6f0a52-8c1b-4b7e-9a57-6f1de0c9b2a4"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

_NO_CONTROLS = r"^[^\x00-\x1f\x7f]*$"

PROJECT_PATTERN = r"^[\w.][\w./-]*$"
Project = Annotated[
    str,
    Query(min_length=1, max_length=200, pattern=PROJECT_PATTERN, description="A project.", examples=["owner/kernels"]),
]
Word = Annotated[str, Query(max_length=500, pattern=_NO_CONTROLS)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern=_NO_CONTROLS)]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]


class Stored(BaseModel):
    """A record that the server has, on disk."""

    run_id: str
    content_hash: str = Field(description="sha256 of what the record says; a client compares it with its own.")
    project: str
    was_new: bool = Field(description="False where the very same record was stored before.")
    is_quarantined: bool = Field(description="Nobody vouches for it: it is shown, and nothing counts it.")
    lacking_artefacts: list[str] = Field(
        default=[], description="sha256 of each file that the record names and that is to be sent yet."
    )

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "run_id": RUN_ID,
                    "content_hash": SHA256,
                    "project": "owner/kernels",
                    "was_new": True,
                    "is_quarantined": False,
                    "lacking_artefacts": [],
                }
            ]
        }
    }


class HeldArtefact(BaseModel):
    """A file of a run that the server has, on disk."""

    run_id: str
    sha256: str
    size_bytes: int
    was_new: bool = Field(description="False where the run had it before.")

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "run_id": RUN_ID,
                    "sha256": SHA256,
                    "size_bytes": 4,
                    "was_new": True,
                }
            ]
        }
    }


class TriagedRegression(BaseModel):
    """A regression, and what people decided about it."""

    regression_id: str = Field(description="The same in every judgement.")
    regression: Regression
    triage: Triage


class Decision(BaseModel):
    """What somebody decides about a regression."""

    state: TriageState
    person: Annotated[Line, Field(max_length=200, description="Who decides.")]
    reason: Annotated[Sentence, Field(description="Why; it stays in the audit trail.")]
    expected: TriageState | None = Field(
        default=None, description="What it was when the person looked; refused with 409 if it is no longer."
    )

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {
            "examples": [
                {
                    "state": "expected",
                    "person": "Example Engineer",
                    "reason": "The price of the exact sum; agreed in the review.",
                    "expected": "new",
                }
            ]
        },
    }


class Release(BaseModel):
    """Why a run may leave quarantine."""

    person: Annotated[Line, Field(max_length=200, description="Who vouches for the record.")]
    reason: Sentence

    model_config = {
        "extra": "forbid",
        "json_schema_extra": {
            "examples": [{"person": "Example Engineer", "reason": "Measured again on our own runner: the same."}]
        },
    }


class Comparison(BaseModel):
    """Two commits against each other."""

    base_run_id: str
    head_run_id: str
    exit_code: int = Field(description="0 fine, 1 a regression, 2 it cannot be told.")
    judgement: dict[str, Any] = Field(description="As `roofwatch compare --json` prints it.")


class ComparedRuns(BaseModel):
    """What two sides of a comparison stand for."""

    base_run_id: str
    head_run_id: str
    noise_floor: NoiseFloor | None = Field(
        default=None,
        description="By the newest stored calibrations of the head's runner; null if it was not asked for.",
    )

    model_config = {"json_schema_extra": {"examples": [{"base_run_id": RUN_ID, "head_run_id": OTHER_RUN_ID}]}}


class Health(BaseModel):
    status: str
