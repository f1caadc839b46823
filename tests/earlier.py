"""The earlier states of an agent, as the file of their history has them."""

from __future__ import annotations

from smp_client import Session
from smp_client.model.record import state_history
from smp_client.text.format import format_of
from smp_client.text.values import Value


def earlier_states(session: Session, agent: str) -> list[Value]:
    """Return the earlier states of an agent, oldest first."""
    kind = state_history(agent)
    records = format_of(kind).parse(session.scope.read(kind.file)).records
    return [record.value["state"] for record in records]
