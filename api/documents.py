"""What OpenAPI says beyond the types: problems, and the body of a record."""

from __future__ import annotations

from typing import Any

from api.problems import MEDIA_TYPE, Problem

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
    429: "The token asks too often; Retry-After says how long to wait.",
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

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "As the client has it: If-None-Match."}}

ARTEFACT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file as it is.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
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
                "example": {
                    "schema_version": "1.4",
                    "run_id": "0b9c6c8e-9a1e-4a0e-8f6e-2f1c1c0a7d11",
                    "project": "owner/kernels",
                    "commit": {
                        "sha": "0123456789abcdef0123456789abcdef01234567",
                        "first_parent_count": 42,
                        "committed_at": "2026-03-01T12:00:00Z",
                    },
                    "started_at": "2026-03-01T13:00:00Z",
                    "finished_at": "2026-03-01T13:05:00Z",
                    "harness_version": "1",
                    "environment": {
                        "device_kind": "cpu",
                        "device_name": "Example CPU",
                        "device_memory_bytes": 17179869184,
                        "cpu_name": "Example CPU",
                        "core_count": 4,
                        "thread_count": 4,
                        "os": "Linux 6.1",
                        "python_version": "3.11.7",
                        "torch_version": "2.13.0",
                    },
                },
            }
        },
    }
}
