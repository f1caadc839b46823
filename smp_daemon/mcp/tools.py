"""The eight tools: names, parameters, when to call them, and the shape of their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from smp_client.agents.context import DEFAULT_TOKENS, LEAST_TOKENS
from smp_client.model.record import SEVERITIES

from . import lookup, writes
from .answer import Answer
from .desk import Desk
from .parameter import Parameter, checked

KINDS = ("decision", "finding", "preference", "learning", "turn")
_TIME = 'an ISO time, a date, or words such as "last 7 days" or "yesterday"'
_project = Parameter(
    "project", 'Another project by its name, or "*" for all. Leave it out for this one.'
)
_kinds = Parameter("kinds", "Only these kinds.", "array", choices=KINDS)
_agent = Parameter("agent", "Only from this agent or person.")
_since = Parameter("since", f"Only from then on: {_TIME}.")
_until = Parameter("until", "Only until then, included.")


@dataclass(frozen=True)
class Tool:
    """A tool as agents see it. `output` describes the data of its answer, if it has any."""

    name: str
    title: str
    about: str
    run: Callable[[Desk, Mapping[str, Any]], Answer]
    parameters: tuple[Parameter, ...]
    output: Mapping[str, Any] | None = None
    reads: bool = True
    destroys: bool = False

    def call(self, desk: Desk, client: str, given: Mapping[str, Any]) -> Answer:
        """Return the answer to a call; raise Refused or SMPError where there is none."""
        arguments = checked(self.name, self.parameters, given)
        desk.note_task(arguments.get("task"))
        if self.reads and desk.is_empty:
            said = f"{lookup.NOTHING} {desk.scope(None)}"
            return Answer(said, None if self.output is None else self._nothing(said))
        return self.run(desk, {**arguments, "client": client})

    def _nothing(self, said: str) -> dict[str, Any]:
        """Return the data of an answer that has none."""
        assert self.output is not None
        empty: dict[str, Any] = {"array": [], "boolean": False, "string": said}
        return {part: empty[schema["type"]] for part, schema in self.output["properties"].items()}


def _output(required: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_FLAG = {"type": "boolean"}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_HIT = _output("id kind text", id=_TEXT, kind=_TEXT, when=_TEXT, who=_TEXT, text=_TEXT,
               marks=_TEXTS, score={"type": "number"})  # fmt: skip

# fmt: off
TOOLS = (
    Tool(
        "memory_search", "Search memory",
        "Call before you debug an error, re-implement something, choose between ways or ask the"
        ' user for something they may have said before, and when the user says "as we decided" or'
        ' "we did this before". Finds what earlier sessions decided, found, learned and were told.'
        ' Any word may match; "a phrase" and +word must, -word must not. Returns hits with id,'
        ' kind, day, author and up to 240 characters, the best first; a mark such as "superseded'
        ' by DEC-004" says that it no longer holds. Read one whole with memory_get. Nothing'
        " matching is said plainly.",
        lookup.search,
        (Parameter("query", "What you want to know, in a few words.", required=True), _kinds,
         Parameter("tags", "Only with one of these tags.", "array"), _agent, _since, _until,
         Parameter("limit", "At most so many hits.", "integer", most=50, default=8), _project),
        _output("hits more scope", hits={"type": "array", "items": _HIT}, more=_FLAG, scope=_TEXT),
    ),
    Tool(
        "memory_get", "Read memories whole",
        "Call when a hit of memory_search, a line of memory_timeline or an id in the context"
        " matters for what you do now. Returns each memory whole as Markdown: text, reasons, tags,"
        " relations, and the file and line in which it stands. With around, also what was said"
        " just before and after. A memory that is too long is cut and says so.",
        lookup.get,
        (Parameter("ids", "SESSION/ID as other tools give them, such as login/DEC-001; the last"
                   " part of a session's id will do.", "array", required=True, most=20),
         Parameter("around", "So many turns of the conversation before and after.", "integer",
                   least=0, most=20, default=0)),
    ),
    Tool(
        "memory_context", "What to know before going on",
        "Call once at the start of a task, before you read code or ask questions, and after your"
        " context was compacted. Returns one Markdown page: next steps, the user's preferences,"
        " open findings, decisions that still hold, learnings and the latest turns, the most"
        " valuable first. Give the task in your own words: what matches comes first.",
        lookup.context,
        (Parameter("task", "What you are about to do."),
         Parameter("topic", "Only decisions, learnings and preferences about this."),
         Parameter("agent", "With this agent's state first; else yours."),
         Parameter("max_tokens", "At most about so many tokens.", "integer", least=LEAST_TOKENS,
                   most=8000, default=DEFAULT_TOKENS), _project),
    ),
    Tool(
        "memory_timeline", "What happened, in order",
        "Call when the user asks what happened, what was done yesterday or last week, or how"
        " something came about. Returns a line for each memory, oldest first, ending with the"
        " latest. Narrow it with since, until, kinds or session.",
        lookup.timeline,
        (Parameter("session", 'Only this session: its id, the last part of it, or "latest".'),
         _since, _until, _kinds,
         Parameter("limit", "At most so many lines.", "integer", most=100, default=30), _project),
    ),
    Tool(
        "memory_sessions", "List sessions",
        "Call when the user speaks of an earlier session, or to find the one to read with"
        " memory_timeline. Returns sessions, the latest first, or those that match query: id,"
        " agents, topic, day, number of memories and one line.",
        lookup.sessions,
        (Parameter("query", "Sessions with memories that match these words."), _agent, _since,
         Parameter("limit", "At most so many sessions.", "integer", most=50, default=10),
         _project),
        _output("sessions more scope", sessions=_OBJECTS, more=_FLAG, scope=_TEXT),
    ),
    Tool(
        "memory_record", "Record a memory",
        "Call at the moment when something is decided, when you find a defect or a surprising"
        " fact, when you learn how something works here, and when the user states a preference;"
        " and with kind next_steps before you stop. One fact a call, in one or two sentences that"
        " a stranger understands; do not record what the code or the commits say anyway. Writes"
        " into this connection's own session, which the first record makes. Secrets are redacted."
        " Returns the id, and whether the same is there already.",
        writes.record,
        (Parameter("kind", "decision, finding, preference (of the user), learning, or next_steps"
                   " (replaces yours).", required=True, choices=(*KINDS[:4], writes.NEXT_STEPS)),
         Parameter("text", "What is to be remembered.", required=True),
         Parameter("why", "The reason, or how you know."),
         Parameter("tags", "A few topics, such as security or build.", "array", most=20),
         Parameter("topic", "Of a preference: what it is about, such as language or tests; else"
                   " the first tag."),
         Parameter("keep_both", "Of a preference: true if it stands beside an earlier one of its"
                   " topic.", "boolean"),
         Parameter("by", "Who decided or found it, where that is not you."),
         Parameter("severity", "Of a finding.", choices=SEVERITIES),
         Parameter("about", "Earlier memories this one resolves, replaces or supports, each as"
                   ' "resolves SESSION/ID".', "array", most=20), _project),
        _output("id", id=_TEXT, redacted={"type": "object"}, similar=_TEXTS),
        reads=False,
    ),
    Tool(
        "memory_update", "Change a memory",
        "Call when a finding is fixed (status resolved, with note), when a memory turned out wrong"
        " (rejected), when another one takes its place (superseded, with by_id), or to correct its"
        " words. pin keeps it from fading. Nothing is lost: the memory stays and is marked."
        " Returns the memory as it is now.",
        writes.update,
        (Parameter("id", "SESSION/ID of the memory.", required=True),
         Parameter("status", "What became of it.", choices=writes.STATUSES),
         Parameter("by_id", "SESSION/ID of the memory that supersedes it."),
         Parameter("text", "Its words from now on."), Parameter("note", "What was done, or why."),
         Parameter("pin", "true to keep it from fading, false to let it.", "boolean")),
        _output("memory", memory=_HIT), reads=False,
    ),
    Tool(
        "memory_forget", "Delete memories",
        "Call only when the user asks to forget something, or for a memory that you recorded by"
        " mistake; for one that is outdated call memory_update. Deletes these memories everywhere;"
        " a person can restore them for 30 days. Returns the batch and until when. With dry_run it"
        " only says what would go.",
        writes.forget,
        (Parameter("ids", "SESSION/ID of each memory.", "array", required=True, most=20),
         Parameter("reason", "Why, in a few words.", required=True),
         Parameter("dry_run", "Only say what would be deleted.", "boolean", default=False)),
        _output("deleted dry_run", deleted=_OBJECTS, dry_run=_FLAG, problems=_TEXTS),
        reads=False, destroys=True,
    ),
)
# fmt: on
