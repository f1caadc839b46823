"""Anonymising: names become placeholders, in a session or in an export on its way out.

In place it is one change: every memory that names somebody is replaced, wherever it is, and the
originals go to one bundle of undo. Restoring that batch undoes it, or it is purged at once. Which
placeholder stood for whom is kept nowhere. `CANNOT_FIND` names the limits.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..change.change import Change, Request, apply
from ..change.holdings import Holding, holdings, id_of_file, is_in_use
from ..change.holdings import names as every_session
from ..change.restore import deleted, manifest_of, new_batch
from ..change.select import owner_of, require_known, several
from ..disk import audit, bundle
from ..disk.bundle import Manifest
from ..disk.place import ARCHIVE, STATES
from ..disk.session_files import METADATA, agents_of
from ..model.errors import Invalid, SessionNotFound, SMPError
from ..model.layout import ARCHIVED, DELETED, GLOBAL
from ..model.outcome import Action, Outcome
from ..model.record import RELATIONSHIP, TURN, check_memory_id, type_of
from ..text.edits import spans
from ..text.mapping import load_mapping
from ..text.values import BadYaml, Value, hash_of, hash_of_bytes, summary_hash
from ..text.version import PROFILE
from .find import notes_about
from .leaks import changed
from .placeholder import (
    Anonymization,
    Names,
    Placeholders,
    Replacement,
    is_placeholder,
    placeholders_in,
)

if TYPE_CHECKING:
    from ..memory import Memory

CANNOT_FIND = (
    "Names that are not in the metadata, in the user's profile or given; nicknames.",
    "Postal addresses, birthdays, account and card numbers, descriptions; images and binary data.",
    "Ids, names of files, keys, comments, memories deleted before; without --all, other sessions.",
)
# Fields of the profile that name the user.
_OWN_NAMES = ("name", "full_name", "first_name", "last_name", "nickname", "username", "user_id")
# Whoever is called so has no name of their own.
_NOBODY = frozenset((
    "admin", "agent", "ai", "anonymous", "architect", "assistant", "bot", "default", "developer",
    "global", "guest", "human", "me", "model", "none", "null", "reviewer", "root", "smp", "system",
    "team", "tester", "tool", "unknown", "user", "you",
))  # fmt: skip
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
_ENDS = frozenset(("source", "target", "relationship"))
_REFERENCE = re.compile(r"(?:DEC|FIND|PREF|LEARN|REL|STATE|GPREF|PAT)-\d{3,12}|turn-\d{1,12}")
_OF_HEAD = re.compile(
    r"(?!\*\*(?:Session|Started|Format-Version|Last-Turn):\*\*|# Conversation History)"
)


@dataclass
class Anonymized(Outcome):
    """An outcome with the placeholders that were put in, and the agents that keep their names."""

    replacements: list[Replacement] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)


class Mask:
    """The names that sessions know, and the placeholders that stand for them in memories.

    As the transform of an export it replaces names in each entry. All names must be known before
    the export begins, so its sessions are read through first.
    """

    anonymizes = True

    def __init__(
        self, memory: Memory, sessions: Sequence[str] | None = None, *,
        names: str | Iterable[str] = (), projects: str | Iterable[str] = (),
        config: Anonymization | None = None,
    ) -> None:  # fmt: skip
        sessions = every_session(memory) if sessions is None else sessions
        self.problems: list[str] = []
        self.summaries: dict[str, str] = {}  # by id: the new hash of a summary of turns
        ids, taken = set(sessions), set[str]()
        given = [*several(names), *several(projects)]
        if wrong := [one for one in given if len(one.strip()) < 2 or not re.search(r"[^\W_]", one)]:
            raise Invalid([f"{one!r} is too short for a name" for one in wrong])
        people = dict.fromkeys(one.strip() for one in several(names))
        known_projects = dict.fromkeys(one.strip() for one in several(projects))
        speakers, agents = dict[str, None](), dict[str, None]()

        def meet(known: dict[str, None], name: object) -> None:
            if isinstance(name, str) and _is_somebody(name):
                known[name] = None

        try:
            profile = load_mapping(memory._scope(GLOBAL).read(PROFILE), "user_profile", PROFILE)
        except SessionNotFound:
            profile = {}  # nobody has said who they are
        except (SMPError, OSError) as error:
            profile = {}
            self.problems.append(f"The user's profile cannot be read: {error}")
        for part in (profile, _mapping(profile.get("user"))):
            for key in _OWN_NAMES:
                meet(people, part.get(key))
        found = (holdings(memory, name, problems=self.problems) for name in sessions)
        for one in itertools.chain.from_iterable(found):
            taken |= placeholders_in(one.raw.decode("utf-8", "replace"))
            if one.file == METADATA:
                participants = _mapping(one.value.get("participants"))
                for agent in agents_of(one.value):
                    meet(agents, agent.get("agent_id"))
                meet(people, participants.get("user_id"))
                meet(known_projects, _mapping(one.value.get("context")).get("project_name"))
            elif one.file == TURN.file:
                meet(speakers, one.value.get("speaker"))
            elif one.file.startswith(f"{STATES}/") and one.is_file:
                meet(agents, id_of_file(one.file))
            if not one.is_file:
                ids.add(one.id)
        # Whoever speaks is somebody, unless known as an agent.
        every = Names([*people, *(name for name in speakers if name not in agents)], known_projects)
        self.placeholders = Placeholders(every, config, taken)
        self.agents = [name for name in agents if not every.find(name)]
        self._ids = {one for one in ids if any(map(str.isdecimal, one))}  # references

    def __call__(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return an entry of an export with placeholders."""
        new = dict(entry)
        if "metadata" in entry:
            new["metadata"] = self.record(METADATA, entry["metadata"])
        if "record" in entry:
            new["record"] = self.record(entry["file"], entry["record"])
        if "reason" in entry:  # of a tombstone
            new["reason"] = self.value(entry["reason"])
        return new

    def value(self, value: Any, key: str = "", fixed: frozenset[str] = frozenset()) -> Any:
        """Return a value with placeholders; keys, fixed fields and references to memories stay."""
        if isinstance(value, str):
            if value in self._ids or _REFERENCE.fullmatch(value):
                return value
            with_names = self.placeholders
            return with_names.tag(value) if key == "tags" else with_names.text(value, key)
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


@dataclass(frozen=True)
class _Run:
    """One anonymisation, in one session or in all."""

    batch: str
    reason: str
    by: str
    ids: Sequence[str] | None = None  # None: every memory
    dry_run: bool = False
    now: bool = False  # whether the originals are purged at once


def anonymize(
    memory: Memory, session: str, id: str | Sequence[str] | None = None, *,
    names: str | Iterable[str] = (), projects: str | Iterable[str] = (),
    config: Anonymization | None = None, reason: str = "anonymised", by: str = "user",
    dry_run: bool = False, now: bool = False,
) -> Anonymized:  # fmt: skip
    """Replace texts that identify somebody by placeholders in a session, or in these memories.

    By default names of people and projects, contacts, addresses, paths and secrets are replaced.
    Until its deadline `restore_batch` undoes it; with `now` the originals are purged at once.
    """
    ids = None if id is None else [check_memory_id(one) for one in several(id)]
    run = _Run(new_batch(memory), reason, by, ids, dry_run, now)
    head = _head(memory, session, run)
    with memory._scope(session).undisturbed("anonymising"):
        mask = Mask(memory, [session], names=names, projects=projects, config=config)
        outcome = _in_session(memory, head, mask, run)
    if now and not dry_run:
        outcome.problems += _purge_originals(memory, session, by)
        outcome.batch = ""
    outcome.problems[:0] = mask.problems
    if ids is None or now:
        # In one session these are comments, keys, drops and bytes that cannot be read.
        outcome.notes += _left(memory, mask, None if now else session) if not dry_run else []
    return _with_replacements(outcome, mask)


def anonymize_everywhere(
    memory: Memory, *,
    names: str | Iterable[str] = (), projects: str | Iterable[str] = (),
    config: Anonymization | None = None, reason: str = "anonymised", by: str = "user",
    dry_run: bool = False, now: bool = False,
) -> Anonymized:  # fmt: skip
    """Anonymise `global` and every session, archived or not, under one batch.

    A name that one session knows is replaced in all, everywhere by the same placeholder. A session
    that fails stops no other.
    """
    memory.require()
    run = _Run(new_batch(memory), reason, by, dry_run=dry_run, now=now)
    _head(memory, GLOBAL, run)  # raises before anything is changed
    sessions = every_session(memory)
    mask = Mask(memory, sessions, names=names, projects=projects, config=config)
    whole = Anonymized(dry_run=dry_run)
    for session in sessions:
        try:
            with memory._scope(session).undisturbed("anonymising"):
                done = _in_session(memory, _head(memory, session, run), mask, run)
            whole.add(done)
            whole.batch = whole.batch or done.batch
            if now and not dry_run:
                whole.problems += _purge_originals(memory, session, by)
        except SessionNotFound:
            continue  # it went meanwhile, or nobody has used `global`
        except (SMPError, OSError) as error:
            whole.problems.append(f"{session}: {error}")
    whole.batch = "" if now else whole.batch
    whole.problems[:0] = mask.problems
    # The originals are left out: who wants them gone says so.
    for place in [None] if now else sessions:
        whole.notes += _left(memory, mask, place) if not dry_run else []
    return _with_replacements(whole, mask)


def _head(memory: Memory, session: str, run: _Run) -> Manifest:
    days = memory.options.retention.deleted_days
    return manifest_of(memory, "undo", session, run.reason, run.by, run.batch, days=days)


def _in_session(memory: Memory, head: Manifest, mask: Mask, run: _Run) -> Anonymized:
    """Anonymise one session, whose passes wait meanwhile."""
    session = head.session
    scope = memory._scope(session)
    outcome = Anonymized(dry_run=run.dry_run)
    ids = run.ids
    meant = [one for one in holdings(memory, session)
             if ids is None or one.id in ids or owner_of(one) in ids]  # fmt: skip
    if ids is not None:
        require_known(memory, session, ids, meant)
    # Metadata and profile say who is who: they have the first placeholders.
    meant.sort(key=lambda one: one.file not in (METADATA, PROFILE))
    mask.summaries.clear()  # their ids are those of one session
    pairs = [(one, change) for one in meant if (change := _change(mask, one)) is not None]
    changes = [change for _, change in pairs]
    changes += [] if ids is not None else _of_head(memory, session, mask)
    if pairs:
        about = tuple(change.id for _, change in pairs)
        kinds = tuple(type_of(one.type) for one, _ in pairs)
        outcome.actions.append(Action(session, "anonymize", about, run.reason, kinds=kinds))
    if run.dry_run or not changes:
        return outcome
    outcome.batch = run.batch
    draft = (f"{DELETED}/{session}/undo-{run.batch}.tar.gz", head)
    facts: dict[str, Any] = {"session": session, "count": len(changes), "batch": run.batch}
    facts |= {"ids": ids, "reason": head.why}
    with audit.noted(memory.tree, "anonymize", clock=memory.options.clock, by=run.by, **facts):
        kept = apply(scope, Request(changes, draft, doing="anonymising"))
    for one in kept:
        outcome.problems.append(f"{session}: {one} was changed meanwhile, and stays.")
    return outcome


def _purge_originals(memory: Memory, session: str, by: str) -> list[str]:
    """Destroy the originals of this run and of earlier ones. Return the problems."""
    undo = {one.batch for one in deleted(memory, session) if one.place == "undo"}
    problems: list[str] = []
    for batch in sorted(undo):
        problems += memory.privacy.purge_now(session, batch=batch, by=by).problems
    return problems


def _left(memory: Memory, mask: Mask, place: str | None) -> list[str]:
    """Return notes on files, of one session or of all, that still hold a name."""
    replacements = mask.placeholders.replacements(with_originals=True)
    gone = [one.what for one in replacements if one.what and len(one.what) > 2]
    opening = "A name that was replaced still stands in"
    return notes_about(memory, gone, opening, place) if gone else []


def _with_replacements(outcome: Anonymized, mask: Mask) -> Anonymized:
    outcome.agents = mask.agents
    outcome.counts = mask.placeholders.counts()
    outcome.replacements = mask.placeholders.replacements(with_originals=outcome.dry_run)
    return outcome


def _change(mask: Mask, one: Holding) -> Change | None:
    """Return the change of one memory; None where it names nobody or has no id.

    A memory that cannot be read stays as it is, and is a problem. An evicted turn changes with its
    summary.
    """
    try:
        new = changed(one, functools.partial(mask.record, one.file), mask.placeholders.text)
    except (SMPError, BadYaml, UnicodeDecodeError) as error:
        mask.problems.append(f"{one.where} cannot be read and stays as it is: {error}")
        return None
    if isinstance(new, dict) and new.get("type") == "summary":
        mask.summaries[one.id] = summary_hash(new)
    # An evicted turn knows the summary that stands for it by its hash.
    known = one.facts.get("summary_hash", "")
    summary = mask.summaries.get(one.facts.get("summary", ""), known)
    is_same = new == (one.raw if one.is_file else one.value) and summary == known
    if is_same or not one.id:
        return None
    hash = hash_of(new) if isinstance(new, dict) else hash_of_bytes(new)
    facts = _facts(hash, one.container) | ({"summary_hash": summary} if summary else {})
    return Change(one.file, one.id, one.hash, new, container=one.container, facts=facts)


def _of_head(memory: Memory, session: str, mask: Mask) -> list[Change]:
    """Return the changes of lines in the head of the conversation, such as its participants."""
    container = "" if is_in_use(memory, session) else f"{ARCHIVED}/{session}/{ARCHIVE}"
    changes: list[Change] = []
    with suppress(SMPError, OSError):  # it was reported with the memories
        if container:
            content = dict(bundle.read(memory.tree, container).files()).get(TURN.file, b"")
        else:
            content = memory._scope(session).read(TURN.file)
        for line in dict.fromkeys(spans(TURN, content).head.splitlines(keepends=True)):
            text = line.decode("utf-8", "replace")
            new = mask.placeholders.text(text).encode() if _OF_HEAD.match(text) else line
            if new != line:
                facts, old = _facts(hash_of_bytes(new), container), hash_of_bytes(line)
                changes.append(Change(TURN.file, "", old, new, container=container, facts=facts))
    return changes


def _facts(replaced_by: str, container: str) -> dict[str, Any]:
    return {"replaced_by": replaced_by, **({"from": container} if container else {})}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_somebody(name: str) -> bool:
    """Return whether a participant has a name of its own, and not only a part to play."""
    word = name.strip().casefold()
    is_name = len(word) > 1 and any(map(str.isalpha, word))
    return is_name and word not in _NOBODY and not is_placeholder(name)
