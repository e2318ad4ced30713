"""What OpenAPI says beyond the types: problems, and the bodies that are read by hand."""

from __future__ import annotations

from typing import Any

from roofwatch.api.problems import MEDIA_TYPE, Problem

_SAID = {
    400: "The request cannot be read.",
    401: "No token, or one that is not known, expired or revoked.",
    403: "The token is for another project, or lacks the scope.",
    404: "There is none that the token may see.",
    408: "The body took too long.",
    409: "Not as it was: other content under a known id, or a state that has changed.",
    410: "What was asked for is no longer kept, by the policy of who runs the store.",
    413: "The body is too large, packed or unpacked.",
    415: "A form that is not known.",
    422: "A value that cannot be.",
    429: "The token asks too often, or too many wrong ones came from its address; Retry-After says how long to wait.",
    503: "Not now, for example because the database is down; Retry-After says when to try again.",
    507: "No room on the database's disk; Retry-After says when to try again.",
}

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "model": Problem,
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status, text in _SAID.items()
}


ARTEFACT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file as it is.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "{}"}},
    }
}

QUESTION_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "What the question takes, by name.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}

RECORD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A RunRecord: docs/record.md, and docs/record.schema.json for its schema.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["schema_version", "run_id"],
                    "properties": {
                        "schema_version": {"type": "string", "pattern": r"^\d+\.\d+$"},
                        "run_id": {"type": "string", "format": "uuid"},
                        "project": {"type": "string", "minLength": 1, "maxLength": 200},
                    },
                },
            }
        },
    }
}
