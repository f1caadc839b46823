"""Party mode: several agents talk in one session and share their findings and decisions.

All of them read conversation, decisions, findings and preferences; an agent's state is its own.
The metadata of the session have `party_mode: true`, so it holds for every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..model.errors import Invalid
from ..model.record import Record
from .agent import PARTY_MODE, AgentMemory
from .aggregation import record_or_merge

if TYPE_CHECKING:
    from ..session import Session


class Party:
    """`session.party()` puts the session into party mode."""

    def __init__(self, session: Session) -> None:
        self.session = session
        if session.metadata().get(PARTY_MODE) is not True:
            session.update_metadata(**{PARTY_MODE: True})

    def agent(self, name: str) -> AgentMemory:
        """Return the session as one agent of the party sees it."""
        return AgentMemory(self.session, name)

    def end(self) -> None:
        """End party mode: agents can read each other's states again."""
        self.session.update_metadata(**{PARTY_MODE: None})

    def record_finding(self, finding: str, *, discovered_by: str, **fields: Any) -> Record:
        """Record a finding, or merge it with one like it.

        A merged finding has `also_found_by`, `observations` and the `evidence` of both.
        """
        return record_or_merge(self.session, finding, {"discovered_by": discovered_by, **fields})

    def record_decision(
        self, decision: str, *, inputs: Mapping[str, str], made_by: str = "party", **fields: Any
    ) -> Record:
        """Record a decision with the input of every agent as `agent_inputs`."""
        if not isinstance(inputs, Mapping):
            given = type(inputs).__name__
            raise Invalid([f"'inputs' must be a text for each agent, by its name, not a {given}"])
        further = {"agents_involved": list(inputs), **fields, "agent_inputs": dict(inputs)}
        return self.session.record_decision(decision, made_by=made_by, **further)
