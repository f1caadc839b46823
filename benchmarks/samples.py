"""Sessions with a given amount already in them, and the memories that the benchmarks write."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from smp_client import Memory, Session
from smp_client.model.record import DECISION, TURN, Kind
from smp_client.text.contents import new_fields
from smp_client.text.format import format_of

QUOTA_BYTES = 1 << 30
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_numbers = itertools.count(1)

DECIDED: dict[str, Any] = {
    "decision": "Use OAuth 2.0 with JWT access tokens that live for 15 minutes",
    "made_by": "architect",
    "rationale": "Refresh tokens can be revoked, and a short life bounds the damage of a stolen one: the API gateway only checks "
    "signatures, and the identity provider keeps the sessions.",
    "confidence": "high",
    "tags": ["security", "oauth"],
}
SAID = "Let's review the authentication requirements.\n\nWho may see the admin pages, and what happens when a token is stolen?"
_FIELDS = {DECISION: DECIDED, TURN: {"speaker": "user", "type": "message", "content": SAID}}


def megabyte_label(megabytes: float) -> str:
    return f"{megabytes:g} MB"


def rendered(kind: Kind, number: int) -> bytes:
    """One memory as it stands in its file."""
    numbered = {"turn": number} if kind is TURN else {}
    return format_of(kind).render({"id": kind.memory_id(number), **numbered, **new_fields(kind, _FIELDS[kind], AT)}, 2)


@cache
def content(kind: Kind, records: int) -> bytes:
    """A record file with so many memories."""
    return format_of(kind).empty("sample", AT, []) + b"".join(rendered(kind, number) for number in range(1, records + 1))


def count_in(kind: Kind, megabytes: float) -> int:
    return int(megabytes * 1_000_000 / len(rendered(kind, 1)))


def new_session(directory: Path, **options: Any) -> Session:
    """A session of its own root."""
    return Memory(directory / f"root-{next(_numbers)}", **options).create_session(user="benchmark", quota_bytes=QUOTA_BYTES)


def filled_session(directory: Path, kind: Kind, records: int, **options: Any) -> Session:
    """A session whose file of this kind holds so many memories, already known to the client as after a first write."""
    session = new_session(directory, **options)
    file_of(session, kind).write_bytes(content(kind, records))
    add(session, kind)
    return session


def add(session: Session, kind: Kind) -> None:
    if kind is TURN:
        session.add_turn("user", SAID)
    else:
        session.record_decision(**DECIDED)


def file_of(session: Session, kind: Kind) -> Path:
    return session.memory.root / session.scope.path(kind.file)


def bare_file(directory: Path, before: bytes) -> Path:
    path = directory / f"bare-{next(_numbers)}"
    path.write_bytes(before)
    return path


def append_bare(path: Path, added: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, added)
    os.fsync(descriptor)
    os.close(descriptor)
