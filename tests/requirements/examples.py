"""The example of the main document: its names, ids, times and figures. The sentences are ours."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from smp_client import Memory, Session

NOW = datetime(2026, 1, 11, 16, 45, tzinfo=UTC)


def written(root: Path) -> Session:
    """Write the session of the document, at the times of the document."""
    memory = Memory(root, clock=lambda: NOW)
    session = memory.create_session(
        "user-123",
        {
            "project_name": "E-Commerce Platform",
            "project_phase": "requirements",
            "primary_topic": "authentication",
            "tags": ["oauth", "security", "requirements"],
        },
        session_id="session-2026-01-11-abc123",
        agent_ids=["bmad-master", "veritas", "architect"],
    )
    session.add_turn("user", "Please look at how people log in.", timestamp="2026-01-11T14:30:00Z")
    session.record_decision(
        "Several agents review the login",
        made_by="bmad-master",
        rationale="It decides who gets in",
        agents_involved=["veritas", "architect"],
        confidence="high",
        reversible=True,
        turn_ref=2,
        tags=["process", "collaboration"],
        timestamp="2026-01-11T14:30:05Z",
    )
    session.record_decision(
        "OAuth 2.0 with JWT",
        made_by="architect",
        agreed_by=["bmad-master", "veritas"],
        rationale="Known well, and single sign-on can follow",
        alternatives_considered=[{"option": "Opaque tokens", "rejected_because": "A look-up each"}],
        confidence="high",
        reversible=False,
        implementation_impact="high",
        turn_ref=8,
        tags=["architecture", "security", "authentication"],
        timestamp="2026-01-11T14:40:00Z",
    )
    for severity, text, tag in (
        ("critical", "Nothing asks for a second factor", "mfa"),
        ("important", "Nobody says when a session ends", "session"),
    ):
        session.record_finding(
            text,
            discovered_by="veritas",
            severity=severity,
            location={"artifact": "/docs/requirements.md", "line_numbers": [45, 60]},
            turn_ref=3,
            tags=["security", "authentication", tag],
            timestamp="2026-01-11T14:30:30Z",
        )
    session.record_preference(
        "A second factor for admins, a choice for customers",
        topic="mfa_requirements",
        category="policy",
        confidence="explicit",
        source="user_statement",
        applies_to={"projects": ["e-commerce-platform"], "domains": ["authentication", "security"]},
        turn_ref=4,
        timestamp="2026-01-11T14:35:00Z",
    )
    session.save_agent_state(
        "veritas",
        {
            "current_context": {"current_task": "verify_requirements", "current_phase": "PHASE_6"},
            "working_memory": {"concerns_identified": ["No second factor", "No end of a session"]},
            "session_learnings": ["Reviews forget the end of sessions"],
            "memory_refs": {"findings_created": ["FIND-001", "FIND-002"]},
        },
    )
    session.relate("DEC-002", "FIND-001", "resolves")
    session.relate("PREF-001", "DEC-002", "influenced")
    return session


@pytest.fixture
def example(tmp_path: Path) -> Session:
    return written(tmp_path / "sessions")
