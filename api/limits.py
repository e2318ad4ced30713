"""How much the door takes from anybody."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What is beyond one of these is refused before it costs more than reading it so far."""

    body_bytes: int = 64 * _MIB
    """Of a request as it is sent."""
    document_bytes: int = 256 * _MIB
    """Of a record once it is unpacked."""
    members: int = 10_000
    """Of gzip in a body: one after the other, as some packers write a long file."""
    decision_bytes: int = 2**15
    """Of what a person decides, and why."""
    question_bytes: int = 4 * _MIB
    """Of a question, which may name every case that is within a reader's filters."""
    answer_bytes: int = 256 * _MIB
    """Of the answer to a question, before it is packed. No client of ours takes more."""
    upload_bytes: int = 512 * _MIB
    """Of all requests that are being read at once, in this process."""
    depth: int = 32
    """Of JSON: arrays and objects in each other. A record has seven."""
    containers: int = 2_000_000
    """Arrays and objects of a document."""
    values: int = 16_000_000
    """Commas in a document, which bound its values."""
    keys: int = 8_000_000
    """Colons in a document, which bound its keys."""
    memory_bytes: int = 3_072 * _MIB
    """That records take while they are parsed and stored, all at once in this process; estimated from above."""
    entries: int = 200_000
    """Results of one kind in a record."""
    cases: int = 20_000
    artefacts: int = 1_000
    """Files that a record names."""
    artefact_bytes: int = 256 * _MIB
    """Of one file."""
    run_artefact_bytes: int = 2_048 * _MIB
    """Of all files of a run."""
    string_characters: int = 100_000
    ingests: int = 4
    """Records that are unpacked and stored at once, and files that are stored, in this process."""
    turn_s: float = 30.0
    """Until one of those turns comes free."""
    silence_s: float = 20.0
    """Without a byte of a body that is not whole."""
    body_s: float = 300.0
    """For a whole body."""
    head_s: float = 10.0
    """For the head of a request."""
    points: int = 50_000
    """Of all series of a page."""
    idle_s: int = 30
    """Between two requests on a connection."""
    connections: int = 500
    requests_per_s: float = 50.0
    """Of one token, in the long run."""
    request_burst: int = 500
    """Of one token, at once."""
    failures_per_s: float = 0.5
    """Wrong tokens from one address that are looked at, in the long run."""
    failure_burst: int = 30
    """The same, at once."""
    query_s: float = 30.0
    """For one question to the database."""
