"""What a person or a client can attach by its address: `smp://context`, `smp://session/login`…"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from smp_client.index.status import read_status

from . import lookup
from .answer import DATA_NOTE, first_bytes, line
from .desk import Desk
from .parameter import Refused
from .tools import TOOLS

_PREFIX = "smp://"
_PREFERENCES = 50


@dataclass(frozen=True)
class Resource:
    """A page at an address. A part of the address in braces is given to `text`."""

    uri: str
    name: str
    about: str
    text: Callable[..., str]


def read(desk: Desk, uri: str) -> str:
    """Return the page at an address; raise Refused where there is none."""
    parts = [unquote(part) for part in uri.removeprefix(_PREFIX).split("/")]
    for one in (*RESOURCES, *TEMPLATES):
        form = one.uri.removeprefix(_PREFIX).split("/")
        is_it = (
            uri.startswith(_PREFIX)
            and len(form) == len(parts)
            and form[0] == parts[0]
            and all(parts)
        )
        if is_it:
            return one.text(desk, *parts[1:])
    addresses = ", ".join(one.uri for one in (*RESOURCES, *TEMPLATES))
    raise Refused(f"There is no resource {uri[:80]!r}; there are {addresses}.")


def _called(desk: Desk, tool: str, **given: object) -> str:
    """Return the text of a tool's answer."""
    return next(one for one in TOOLS if one.name == tool).call(desk, "resource", given).text


def _context(desk: Desk) -> str:
    return _called(desk, "memory_context")


def _preferences(desk: Desk) -> str:
    if desk.is_empty:
        return lookup.NOTHING
    found = desk.memory.by_type("preference", limit=_PREFERENCES, **lookup.within(desk, None))
    lines = [line(record, 200) for record in found if record.holds]
    text = "\n".join(
        [f"# Preferences\n{DATA_NOTE}", *(lines or ["None is known yet."]), desk.scope(None)]
    )
    return first_bytes(text, desk.budget)


def _session(desk: Desk, session: str) -> str:
    return _called(desk, "memory_timeline", session=session, limit=100)


def _memory(desk: Desk, session: str, memory_id: str) -> str:
    return _called(desk, "memory_get", ids=[f"{session}/{memory_id}"])


def _status(desk: Desk) -> str:
    status = read_status(desk.memory)
    counts = (
        ", ".join(f"{count} {state}" for state, count in status.root.sessions.items()) or "none"
    )
    lines = [f"# Memory: {status.health}", f"- tree: {desk.memory.root}", f"- sessions: {counts}"]
    lines += [
        f"- memories: {status.root.memories:,}",
        *(f"- {problem}" for problem in status.problems[:10]),
    ]
    return "\n".join(lines)


RESOURCES = (
    Resource(
        "smp://context",
        "context",
        "What an agent should know of this project before it goes on.",
        _context,
    ),
    Resource("smp://preferences", "preferences", "What the user prefers.", _preferences),
    Resource("smp://status", "status", "Whether the memory and its daemon are well.", _status),
)
TEMPLATES = (
    Resource("smp://session/{id}", "session", "What happened in a session.", _session),
    Resource("smp://memory/{session}/{id}", "memory", "One memory whole.", _memory),
)
