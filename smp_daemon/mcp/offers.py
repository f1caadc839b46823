"""Resources, which a person attaches by their address, and prompts, which have names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from smp_client.index.status import read_status

from . import lookup
from .answer import DATA_NOTE, cut, first_bytes, line
from .desk import Desk
from .parameter import Parameter, Refused, checked
from .tools import TOOLS

_PREFIX = "smp://"
_PREFERENCES = 50
_ARGUMENT_CHARACTERS = 1000  # of the argument of a prompt; the tool gets all of it


def _called(desk: Desk, tool: str, **given: object) -> str:
    """Return the text of a tool's answer."""
    return next(one for one in TOOLS if one.name == tool).call(desk, lookup.PERSON, given).text


# Resources.


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
    for one in RESOURCES if uri.startswith(_PREFIX) and all(parts) else ():
        form = one.uri.removeprefix(_PREFIX).split("/")
        if len(form) == len(parts) and form[0] == parts[0]:
            return one.text(desk, *parts[1:])
    addresses = ", ".join(one.uri for one in RESOURCES)
    raise Refused(f"There is no resource {uri[:80]!r}; there are {addresses}.")


def _preferences(desk: Desk) -> str:
    if desk.is_empty:
        return lookup.NOTHING
    found = desk.memory.by_type("preference", limit=_PREFERENCES, **lookup.within(desk, None))
    lines = [line(record, 200) for record in found if record.holds] or ["None is known yet."]
    text = "\n".join([f"# Preferences\n{DATA_NOTE}", *lines, desk.scope(None)])
    return first_bytes(text, desk.budget)


def _status(desk: Desk) -> str:
    status = read_status(desk.memory)
    counts = [f"{count} {state}" for state, count in status.root.sessions.items()]
    lines = [f"# Memory: {status.health}", f"- tree: {desk.memory.root}",
             f"- sessions: {', '.join(counts) or 'none'}",
             f"- memories: {status.root.memories:,}"]  # fmt: skip
    return "\n".join([*lines, *(f"- {problem}" for problem in status.problems[:10])])


# fmt: off
RESOURCES = (
    Resource("smp://context", "context",
             "What an agent should know of this project before it goes on.",
             lambda desk: _called(desk, "memory_context")),
    Resource("smp://preferences", "preferences", "What the user prefers.", _preferences),
    Resource("smp://status", "status", "Whether the memory and its daemon are well.", _status),
    Resource("smp://session/{id}", "session", "What happened in a session.",
             lambda desk, session: _called(desk, "memory_timeline", session=session, limit=100)),
    Resource("smp://memory/{session}/{id}", "memory", "One memory whole.",
             lambda desk, session, id: _called(desk, "memory_get", ids=[f"{session}/{id}"])),
)
# fmt: on


# Prompts.


@dataclass(frozen=True)
class Prompt:
    """A prompt: its `words`, in which {what} is the argument, and the answer of a tool."""

    name: str
    about: str
    words: str
    parameters: tuple[Parameter, ...] = ()
    tool: tuple[str, str] | None = None  # its name, and the parameter that gets the argument
    before: str = ""  # the argument, where there is one

    def text(self, desk: Desk, given: Mapping[str, str]) -> str:
        """Return the text for the model."""
        arguments = checked(f"The prompt {self.name}", self.parameters, given)
        what = next(iter(arguments.values()), None)
        named = f"{self.before}{cut(what, _ARGUMENT_CHARACTERS)}" if what else ""
        answer = _called(desk, self.tool[0], **{self.tool[1]: what}) if self.tool else ""
        return self.words.replace("{what}", named) + (f"\n\n{answer}" if answer else "")


# fmt: off
PROMPTS = (
    Prompt("resume", "Go on where the last session stopped.",
           "Let us go on{what}. Below is what is remembered. Say in a few sentences where we stand,"
           " what is open and what you would do next, then wait.",
           (Parameter("topic", "What it is about."),), ("memory_context", "task"), " with "),
    Prompt("wrap_up", "Record what this session decided, found and learned.",
           "Before we stop: go through this conversation and record with memory_record what was"
           " decided (with why), found (with severity), learned, and what I said I prefer; one fact"
           " a call, and nothing that is recorded already. Update with memory_update what was"
           " resolved or replaced. Then record next_steps, and list the ids for me."),
    Prompt("recall", "What is known about a topic.",
           "What do we know about {what}? Use the memories below, read those that matter with"
           " memory_get, cite their ids, and say plainly where nothing is remembered.",
           (Parameter("topic", "What it is about.", required=True),), ("memory_search", "query")),
    Prompt("handoff", "Leave the work so that another agent can go on.",
           "Hand this work over{what}. Record with memory_record what is decided and found but not"
           " recorded yet, then next_steps that somebody who was not here can follow: where things"
           " are, what was tried, what comes first. Then write me a short note with the ids that"
           " they should read.",
           (Parameter("to", "Who goes on."),), before=" to "),
)
# fmt: on
