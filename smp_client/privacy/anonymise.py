"""Anonymising: names become placeholders, in a session or in an export on its way out.

In place it is one change: every memory that names somebody is replaced, wherever it is, and the
originals go to one bundle of undo. Restoring that batch undoes it, or it is purged at once. Which
placeholder stood for whom is kept nowhere. `CANNOT_FIND` names the limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..change.change import Change, Draft, Request, apply
from ..change.holdings import Holding, holdings, is_in_use
from ..change.holdings import names as every_session
from ..change.places import PROFILE, id_of_file
from ..change.restore import deleted, manifest_of, new_batch
from ..change.select import agent_of, require_known, several
from ..disk import audit, bundle
from ..disk.scopes import ARCHIVE, ARTIFACTS, STATES
from ..disk.session_files import METADATA, parse_artifact
from ..model.errors import Invalid, SMPError
from ..model.layout import ARCHIVED, DELETED, GLOBAL
from ..model.outcome import Action, Outcome
from ..model.record import RELATIONSHIP, TURN, check_memory_id, type_of
from ..text.edits import spans
from ..text.fingerprint import hash_of, hash_of_bytes, summary_hash
from ..text.mapping import load_mapping, replace_parts
from ..text.values import BadYaml, Value, render_entries
from ..text.version import top_of
from .find import notes_about
from .names import Names, is_somebody
from .placeholder import Anonymization, Placeholders, Replacement, is_placeholder

if TYPE_CHECKING:
    from ..memory import Memory

CANNOT_FIND = (
    "Names that are not in the metadata, in the user's profile or given; nicknames.",
    "Postal addresses, birthdays and descriptions; numbers of no usual form; images, binary data.",
    "Ids, names of files, keys, comments, other sessions, and memories deleted before: they stay.",
)
_OWN_NAMES = (
    "name", "full_name", "first_name", "last_name", "given_name", "family_name", "display_name",
    "preferred_name", "nickname", "username", "user_name", "user_id", "login", "handle",
)  # fmt: skip
# Fields whose values are structure: ids, times, types, references.
_RECORD = frozenset((
    "id", "timestamp", "decay", "turn", "turn_ref", "memory_refs", "type", "severity", "confidence",
    "pinned", "updated_at", "redacted", "summarizes", "version", "session_id", "agent_id",
    "last_updated",
))  # fmt: skip
_METADATA = frozenset((
    "id", "created_at", "last_accessed", "status", "status_since", "storage", "decay",
    "decay_config", "compaction_config", "party_mode", "redacted",
))  # fmt: skip
_ENTRY = frozenset((
    "entry", "session", "file", "kind", "type", "id", "path", "place", "written", "source",
))  # fmt: skip
_NAMED_SESSION = "The id of the session {} holds a known name, and stays."
_ENDS = frozenset(("source", "target", "relationship"))
_REFERENCE = re.compile(r"(?:DEC|FIND|PREF|LEARN|REL|STATE|GPREF|PAT)-\d{3,12}|turn-\d{1,12}")
_OF_HEAD = re.compile(
    r"(?!\*\*(?:Session|Started|Format-Version|Last-Turn):\*\*|# Conversation History)"
)


@dataclass
class Anonymized(Outcome):
    """An outcome with the placeholders that were put in, and the agents that keep their names."""

    session: str = ""
    replacements: list[Replacement] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)  # batches of runs before, still restorable
    cannot_find: tuple[str, ...] = CANNOT_FIND
    erased: bool = False


@dataclass
class Known:
    """The people, projects and agents that a session knows by name."""

    people: dict[str, None] = field(default_factory=dict)
    projects: dict[str, None] = field(default_factory=dict)
    speakers: dict[str, None] = field(default_factory=dict)
    agents: dict[str, None] = field(default_factory=dict)

    def give(self, names: Iterable[str], projects: Iterable[str]) -> None:
        """Add names that a person gave. Raises Invalid for one that is too short."""
        for known, given in ((self.people, names), (self.projects, projects)):
            for name in given:
                if len(name.strip()) < 2 or not any(map(str.isalnum, name)):
                    raise Invalid([f"{name!r} is too short for a name"])
                known[name.strip()] = None

    def meet(self, file: str, value: Mapping[str, Any]) -> None:
        """Take in whom a memory names in its structure."""
        if file == METADATA:
            participants = _mapping(value.get("participants"))
            for agent in participants.get("agents") or ():
                self._add(self.agents, _mapping(agent).get("agent_id"))
            self._add(self.people, participants.get("user_id"))
            self._add(self.projects, _mapping(value.get("context")).get("project_name"))
        elif file == PROFILE:
            for part in (value, _mapping(value.get("user"))):
                for key in _OWN_NAMES:
                    self._add(self.people, part.get(key))
        elif file == TURN.file:
            self._add(self.speakers, value.get("speaker"))
        elif file.startswith(f"{STATES}/"):
            self._add(self.agents, id_of_file(file))

    def names(self) -> Names:
        """Whoever speaks is somebody, unless known as an agent. A placeholder is nobody's name."""
        speakers = (name for name in self.speakers if name not in self.agents)
        people = [name for name in (*self.people, *speakers) if not is_placeholder(name)]
        return Names(people, [name for name in self.projects if not is_placeholder(name)])

    def kept_agents(self) -> list[str]:
        names = self.names()
        return [name for name in self.agents if not is_placeholder(name) and not names.find(name)]

    def _add(self, known: dict[str, None], name: object) -> None:
        if isinstance(name, str) and is_somebody(name):
            known[name] = None


class Replacer:
    """Puts placeholders into memories; structure stays."""

    def __init__(self, placeholders: Placeholders, ids: Collection[str] = ()) -> None:
        self._placeholders = placeholders
        # References, wherever they stand.
        self._ids = frozenset(one for one in ids if any(map(str.isdecimal, one)))

    def value(self, value: Any, key: str = "", fixed: Collection[str] = ()) -> Any:
        """Return a value with placeholders; keys, fixed fields and references to memories stay."""
        if isinstance(value, str):
            if value in self._ids or _REFERENCE.fullmatch(value):
                return value
            placeholders = self._placeholders
            return placeholders.tag(value) if key == "tags" else placeholders.text(value, key)
        if isinstance(value, list):
            return [self.value(item, key) for item in value]
        if isinstance(value, dict):
            parts = value.items()
            return {name: part if name in fixed else self.value(part, name) for name, part in parts}
        return value

    def record(self, file: str, value: Mapping[str, Value]) -> dict[str, Value]:
        """Return the fields of a memory with placeholders."""
        fixed = _METADATA if file == METADATA else _RECORD
        fixed |= _ENDS if file == RELATIONSHIP.file else frozenset()
        new: dict[str, Value] = self.value(dict(value), fixed=fixed)
        return new

    def file(self, file: str, content: bytes) -> bytes:
        """Return a file that is one memory with placeholders. Raises where it is unreadable."""
        if file.startswith(f"{ARTIFACTS}/"):
            fields, body = parse_artifact(content)
            before = content[: len(content) - len(body.encode())]
            if (new := self.record(file, fields)) != fields:
                lines = "".join(line + "\n" for line in render_entries(new, 0))
                before = f"---\n{lines}---\n".encode()
            return before + self._placeholders.text(body).encode()
        top = top_of(file) or ""
        old = load_mapping(content, top, file)
        changed = {name: part for name, part in self.record(file, old).items() if part != old[name]}
        return replace_parts(content, top, changed, file) if changed else content


def anonymize(
    memory: Memory, session: str, id: str | Sequence[str] | None = None, *,
    names: str | Iterable[str] = (), projects: str | Iterable[str] = (),
    config: Anonymization | None = None, reason: str = "anonymised", by: str = "user",
    dry_run: bool = False, now: bool = False,
) -> Anonymized:  # fmt: skip
    """Replace names of people and projects by placeholders in a session, or in these memories.

    Until its deadline `restore_batch` undoes it; with `now` the originals are purged at once.
    """
    wanted = None if id is None else [check_memory_id(one) for one in several(id)]
    batch, days = new_batch(memory), memory.options.retention.deleted_days
    head = manifest_of(memory, "undo", session, reason, by, batch, days=days)
    scope = memory._scope(session)
    with scope.undisturbed("anonymising"):
        run = _Run(
            memory, session, known_of(memory, [session], several(names), several(projects)), config
        )
        outcome, changes = run.plan(wanted, reason)
        outcome.dry_run = dry_run
        earlier = {one.batch for one in deleted(memory, session) if one.action == "anonymize"}
        outcome.earlier = sorted(earlier)
        outcome.replacements = run.placeholders.replacements(telling=dry_run)
        if dry_run:
            return outcome
        if changes:
            outcome.batch = batch
            draft = Draft(f"{DELETED}/{session}/undo-{batch}.tar.gz", head)
            facts = {"session": session, "count": len(changes), "batch": batch}
            with audit.noted(memory.tree, "anonymize", clock=memory.options.clock, by=by, **facts):
                applied = apply(scope, Request(changes, draft, doing="anonymising"))
            changed = f"{session}: {{}} was changed meanwhile, and stays."
            outcome.problems += [changed.format(one) for one in applied.kept]
    if now:
        for one in [*outcome.earlier, *([outcome.batch] if outcome.batch else [])]:
            outcome.problems += memory.privacy.purge_now(session, batch=one, by=by).problems
        outcome.batch, outcome.erased = "", True
    if id is None or now:
        gone = [one.what or "" for one in run.placeholders.replacements(telling=True)]
        gone = [one for one in gone if len(one) > 2]
        opening = "A name that was replaced still stands in"
        # In one session these are comments, keys, drops and bytes that cannot be read.
        place = None if now else session
        outcome.notes += notes_about(memory, gone, opening, place) if gone else []
    return outcome


class _Run:
    """One anonymisation: the memories of a session, and the placeholders for its names."""

    def __init__(
        self, memory: Memory, session: str, known: Known, config: Anonymization | None
    ) -> None:
        self.problems: list[str] = []
        self._memory, self._session, self._known = memory, session, known
        self._found = [*holdings(memory, session, problems=self.problems)]
        self.placeholders = Placeholders(known.names(), config)
        for one in self._found:
            self.placeholders.avoid(one.raw.decode("utf-8", "replace"))
        ids = {one.id for one in self._found if not one.is_file}
        self._replacer = Replacer(self.placeholders, {session, *ids})

    def plan(self, ids: Sequence[str] | None, reason: str) -> tuple[Anonymized, list[Change]]:
        """Return the outcome and the changes of some memories, or of all and of the head."""
        meant = [one for one in self._found if ids is None or one.id in ids or agent_of(one) in ids]
        if ids is not None:
            require_known(self._memory, self._session, ids, meant)
        # Metadata and profile say who is who: they have the first placeholders.
        meant.sort(key=lambda one: one.file not in (METADATA, PROFILE))
        changed = [(one, change) for one in meant if (change := self._change(one)) is not None]
        changes = self._with_summaries([change for _, change in changed])
        changes += [] if ids is not None else self._of_head()
        agents = self._known.kept_agents()
        outcome = Anonymized(session=self._session, agents=agents, problems=self.problems)
        if changed:
            about = tuple(change.id for _, change in changed)
            kinds = tuple(type_of(one.type) for one, _ in changed)
            outcome.actions.append(Action(self._session, "anonymize", about, reason, kinds=kinds))
        outcome.counts = self.placeholders.counts()
        if self.placeholders.finds(self._session):
            outcome.problems.append(_NAMED_SESSION.format(self._session))
        return outcome, changes

    def _change(self, one: Holding) -> Change | None:
        """Return the change of one memory; None where it names nobody or cannot be changed."""
        new: bytes | dict[str, Value]
        try:
            if one.is_file:
                new = self._replacer.file(one.file, one.raw)
                replaced_by = hash_of_bytes(new) if new != one.raw else ""
            else:
                new = self._replacer.record(one.file, one.value)
                replaced_by = hash_of(new) if new != one.value else ""
        except (SMPError, BadYaml, UnicodeDecodeError) as error:
            self.problems.append(f"{one.where} cannot be read and stays as it is: {error}")
            return None
        if replaced_by and not one.id:
            problem = f"{one.where}, line {one.line}: a record without an id stays as it is."
            self.problems.append(problem)
        if not replaced_by or not one.id:
            return None
        facts = _facts(replaced_by, one.container)
        return Change(one.file, one.id, one.hash, new, container=one.container, facts=facts)

    def _with_summaries(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes, and the new hash of a summary for the evicted turns it stands for."""
        new: dict[str, str] = {}
        for change in changes:
            if isinstance(change.new, dict) and change.new.get("type") == "summary":
                new[change.id] = summary_hash(change.new)
        known = {(change.container, change.file, change.id): change for change in changes}
        for one in self._found:
            if one.place == "evicted" and (hash := new.get(one.facts.get("summary", ""))):
                key, facts = (one.container, one.file, one.id), _facts(one.hash, one.container)
                same = Change(*key[1:], one.hash, one.raw, container=one.container, facts=facts)
                change = known.get(key, same)
                known[key] = replace(change, facts={**change.facts, "summary_hash": hash})
        return list(known.values())

    def _of_head(self) -> list[Change]:
        """Return the changes of lines in the head of the conversation, as its participants."""
        container = ""
        try:
            if is_in_use(self._memory, self._session):
                content = self._memory._scope(self._session).read(TURN.file)
            else:
                container = f"{ARCHIVED}/{self._session}/{ARCHIVE}"
                packed = bundle.read(self._memory.tree, container)
                content = dict(packed.files()).get(TURN.file, b"")
            head = spans(TURN, content).head
        except (SMPError, OSError):
            return []  # it was reported with the memories
        changes: list[Change] = []
        for line in dict.fromkeys(head.splitlines(keepends=True)):
            text = line.decode("utf-8", "replace")
            new = str(self._replacer.value(text)) if _OF_HEAD.match(text) else text
            if new != text:
                raw, facts = new.encode(), _facts(hash_of_bytes(new.encode()), container)
                old = hash_of_bytes(line)
                changes.append(Change(TURN.file, "", old, raw, container=container, facts=facts))
        return changes


def _facts(replaced_by: str, container: str) -> dict[str, Any]:
    return {"replaced_by": replaced_by, **({"from": container} if container else {})}


def known_of(
    memory: Memory, sessions: Iterable[str], names: Iterable[str], projects: Iterable[str]
) -> Known:
    """Return the names that are given, or stand in metadata, turns, states and the profile."""
    known = Known()
    known.give(names, projects)
    try:
        profile = load_mapping(memory._scope(GLOBAL).read(PROFILE), "user_profile", PROFILE)
    except (SMPError, OSError):
        profile = {}  # nobody has said who they are
    known.meet(PROFILE, profile)
    for session in sessions:
        for one in holdings(memory, session):
            known.meet(one.file, one.value)
    return known


class AnonymousExport:
    """The transform by which an export holds placeholders in the place of names.

    All names must be known before the export begins, so its sessions are read through first.
    """

    anonymizes = True

    def __init__(
        self, memory: Memory, sessions: Sequence[str] | None = None, *,
        names: str | Iterable[str] = (), projects: str | Iterable[str] = (),
        config: Anonymization | None = None,
    ) -> None:  # fmt: skip
        self.problems: list[str] = []
        wanted = every_session(memory) if sessions is None else list(sessions)
        known = known_of(memory, wanted, several(names), several(projects))
        self._placeholders = Placeholders(known.names(), config)
        for name in wanted:
            for one in holdings(memory, name, problems=self.problems):
                self._placeholders.avoid(one.raw.decode("utf-8", "replace"))
            if self._placeholders.finds(name):
                self.problems.append(_NAMED_SESSION.format(name))
        self._replacer = Replacer(self._placeholders, wanted)
        self.agents = known.kept_agents()
        self.cannot_find = CANNOT_FIND

    def replacements(self) -> list[Replacement]:
        return self._placeholders.replacements(telling=False)

    def counts(self) -> dict[str, int]:
        return dict(self._placeholders.counts())

    def __call__(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """Return an entry of an export with placeholders; None for bytes that are no text."""
        if entry.get("entry") == "bytes" and not isinstance(entry.get("text"), str):
            self.problems.append(f"{entry.get('session')}: a file was left out: it may hold names.")
            return None
        return {name: self._part(entry, name, part) for name, part in entry.items()}

    def _part(self, entry: Mapping[str, Any], name: str, part: Any) -> Any:
        if name in _ENTRY:
            return part
        if isinstance(part, dict):
            file = METADATA if entry.get("entry") == "session" else str(entry.get("file", ""))
            return self._replacer.record(file, part)
        return self._replacer.value(part)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
