"""What a session that is there already gets of an import: a plan, which decides, and an apply, which only does it.

A memory that is there with the same id and says the same is skipped; how much it still matters does not count. One whose id nobody
has is added with its id. One whose id belongs to another memory gets a new one, and keeps the old one as `imported_id`, by which it
is known the next time; so is what comes with an `imported_id`, whatever number it has got this time. What was deleted here is not
brought back, and what was changed here stays as it is. What a log says at greater length than before is replaced: it has grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..append import with_id
from ..errors import SMPError
from ..formats import format_of
from ..layout import ACCESS_LOG, is_file_id
from ..maintain.putting_back import number_of
from ..mapping import load_mapping, replace_parts
from ..privacy.redaction import OFF
from ..records import TURN, Kind, is_deleted, state_history
from ..scopes import ARTIFACTS, STATES
from ..session_files import METADATA, artifact_file, parse_artifact, state_file, state_history_entry
from ..values import Value, canonical
from .building import Building
from .entries import PROFILE, kind_of
from .pieces import artifact_content
from .purged import is_purged_file

IMPORTED, IMPORTED_ID = "imported", "imported_id"
_PARENT = "parent_message_id"  # in the context of a turn from elsewhere
_REFERENCES = ("memory_refs", "references", "source", "target", "turn_ref")
_NOT_SAID = ("id", "turn", IMPORTED_ID, "decay", *_REFERENCES)
# What other programs go on changing in an entry that is kept as a whole, below `imported`: how much it matters, not what it says.
_CHANGING = ("priority", "access", "decay_factor", "access_count", "last_accessed", "last_decay_update")
_MARKS = frozenset(("deleted", "tombstone", "deleted_at", "deleted_by"))  # and whether it is deleted there: for removed.py
Values = dict[str, Value]
Read = Callable[[str], bytes | None]  # the content of a file that is there


@dataclass
class Standing:
    """What is there."""

    read: Read
    highest: Callable[[Kind, bytes], int]
    deleted: dict[tuple[str, str], set[str | None]] = field(default_factory=dict)  # by file and id: of which time
    deleted_before: dict[tuple[str, str], set[str | None]] = field(default_factory=dict)  # by what each was known as before
    evicted: dict[tuple[str, str], list[Values]] = field(default_factory=dict)


@dataclass
class Merge:
    """What is to be done, and why something is not."""

    added: dict[str, list[Values]] = field(default_factory=dict)  # records, by the file that is there
    whole: dict[str, bytes] = field(default_factory=dict)  # files that are not there, or are replaced: all of them text
    copies: dict[str, bytes] = field(default_factory=dict)  # any other file
    grown: dict[str, dict[str, Values]] = field(default_factory=dict)  # by file and id: what stands there, with more text
    last: dict[str, int] = field(default_factory=dict)  # the highest number that was given where it comes from
    renamed: dict[str, str] = field(default_factory=dict)
    skipped: int = 0
    count: int = 0  # memories that are added
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.grown or self.whole or self.copies)

    @property
    def lacking(self) -> int:
        """How many memories are not there, or not whole."""
        return self.count + sum(map(len, self.grown.values()))


def plan(building: Building, standing: Standing, at: datetime) -> Merge:
    return _Plan(building, standing, at).made()


def wanted_files(building: Building) -> set[str]:
    """The files that a writer locks, as far as they are read or written when it is merged."""
    files = building.files()
    agents = {agent for file in files if (agent := _stem(file, STATES, ".yaml"))}
    locked = {file for file in files if file in (METADATA, PROFILE) or kind_of(building.session, file)}
    locked |= {file for file in files if _stem(file, ARTIFACTS, ".md")}
    return locked | {file for agent in agents for file in (state_file(agent), state_history(agent).file)}


class _Plan:
    def __init__(self, building: Building, standing: Standing, at: datetime) -> None:
        self._building, self._standing, self._at = building, standing, at
        self._merge = Merge()
        self._numbers: dict[str, int] = {}
        self._doubtful: list[tuple[Kind, Values, list[Values]]] = []
        self._gone: list[str] = []
        self._changed: list[str] = []  # here
        self._absent: set[str] = set()  # files that are not there, and of which nothing is to be left out
        self._waiting: dict[str, list[Values]] = {}  # what is added, while it is not yet known which ids change

    def made(self) -> Merge:
        merge, building = self._merge, self._building
        files = building.files()
        records = [(file, kind) for file in files if (kind := kind_of(building.session, file))]
        for file, kind in records:
            self._compare(kind, building.read(file), self._standing.read(file))
        self._settle_doubts()
        for file, values in self._waiting.items():
            changed = [referring(value, merge.renamed) for value in values]
            if file in self._absent and not merge.renamed:
                merge.whole[file] = building.read(file)
            else:
                merge.added[file] = changed
            merge.count += len(changed)
        for file in files:
            if kind_of(building.session, file) is None:
                self._other(file, building.read(file), self._standing.read(file))
        self._tell_what_stays()
        return merge

    def _tell_what_stays(self) -> None:
        grown = [memory_id for values in self._merge.grown.values() for memory_id in values]
        for ids, what in ((self._gone, "deleted or anonymised here, and not brought back; smp restore does that."),
                          (self._changed, "changed here since, and left as it is here."),
                          (grown, "longer than before; what is new was added to it.")):  # fmt: skip
            if ids:
                self._merge.notes.append(f"{', '.join(ids[:5])}{', …' if len(ids) > 5 else ''}: {what}")

    # Records.

    def _compare(self, kind: Kind, content: bytes, there: bytes | None) -> None:
        form = format_of(kind)
        found, known = form.parse(content), form.parse(there or b"")
        incoming = sorted(found.records, key=lambda record: record.start)
        by_id: dict[str, list[Values]] = {}
        by_old_id: dict[str, list[Values]] = {}
        evicted = [value for (file, _), values in self._standing.evicted.items() if file == kind.file for value in values]
        for record in known.records:
            by_id.setdefault(str(record.value.get("id")), []).append(record.value)
        for value in [*(record.value for record in known.records), *evicted]:
            if old := known_before(kind, value):
                by_old_id.setdefault(old, []).append(value)
        last, own = form.highest(found, content), self._standing.highest(kind, there or b"")
        self._numbers[kind.file] = max(last, own)
        if last > own:
            self._merge.last[kind.file] = last
        for record in incoming:
            memory_id, value = str(record.value.get("id")), record.value
            same_id = by_id.get(memory_id, []) + self._standing.evicted.get((kind.file, memory_id), [])
            same_old_id = by_old_id.get(memory_id, []) + by_old_id.get(known_before(kind, value) or memory_id, [])
            if here := next((one for one in by_id.get(memory_id, ()) if _has_grown(kind, one, value)), None):
                self._merge.grown.setdefault(kind.file, {})[memory_id] = _longer(kind, here, value)
                continue
            self._sort_in(kind, memory_id, value, same_id, same_old_id, has_id=record.has_id)
        if there is None and len(self._waiting.get(kind.file, ())) == len(incoming):
            self._absent.add(kind.file)
        if there is None and not incoming:
            self._merge.whole[kind.file] = content  # with no record, but with a head
        elif self._building.bad.get(kind.file) and there is not None:
            self._merge.problems.append(f"{kind.file}: {self._building.bad[kind.file]} pieces that are no records were left out.")

    def _sort_in(
        self, kind: Kind, memory_id: str, value: Values, same_id: list[Values], same_old_id: list[Values], *, has_id: bool
    ) -> None:  # fmt: skip
        if any(_same(one, value) for one in same_id) or (same_id and is_deleted(kind, value)):
            self._merge.skipped += not is_deleted(kind, value)
        elif not has_id:
            self._merge.problems.append(f"{kind.file}: a record without an id was left out.")
        elif known := next((one for one in same_old_id if said(one) == said(value)), None):
            if memory_id != known["id"]:
                self._merge.renamed[memory_id] = str(known["id"])
            self._merge.skipped += 1
        elif changed := next((one for one in (*same_id, *same_old_id) if _is_changed_here(kind, one, value)), None):
            if memory_id != changed["id"]:
                self._merge.renamed[memory_id] = str(changed["id"])
            self._changed.append(str(changed["id"]))
            self._merge.skipped += 1
        elif self._building.purged and self._building.purged.holds(kind.file, value) and not is_deleted(kind, value):
            self._building.left_out.append(memory_id)
        elif self._building.taken_back and self._building.taken_back.holds(kind.file, value):
            # Of a turn the number stands, and nobody else gets it.
            self._doubtful.append((kind, value, same_id)) if same_id else self._waiting.setdefault(kind.file, []).append(value)
        elif self._is_gone(kind, memory_id, value, same_id):
            self._gone.append(memory_id)
        elif same_id or (kind.file, memory_id) in self._standing.deleted or self._was_purged(kind, value):
            self._doubtful.append((kind, value, same_id))
        else:
            self._waiting.setdefault(kind.file, []).append(value)

    def _was_purged(self, kind: Kind, value: Values) -> bool:
        """Whether another one of this id went for good: its number is not given again."""
        known = self._building.purged or self._building.taken_back
        return known is not None and known.when(kind.file, str(value["id"])) is not None and not is_deleted(kind, value)

    def _is_gone(self, kind: Kind, memory_id: str, value: Values, same_id: list[Values]) -> bool:
        """Whether it was deleted here. One of another time only has the number of one that was."""
        times = {one.get("timestamp") for one in same_id if is_deleted(kind, one)}
        times |= self._standing.deleted.get((kind.file, memory_id), set())
        times |= self._standing.deleted_before.get((kind.file, known_before(kind, value) or ""), set())
        return value.get("timestamp") in times

    def _settle_doubts(self) -> None:
        """Of those whose id is taken: one that differs only because what it refers to has got another id is there already."""
        only_references: list[tuple[Kind, Values, list[Values]]] = []
        for kind, value, same_id in self._doubtful:
            if any(said(one) == said(value) for one in same_id):
                only_references.append((kind, value, same_id))
            else:
                self._rename(kind, value)
        for kind, value, same_id in only_references:
            if any(_same(one, referring(value, self._merge.renamed)) or _is_of_a_log(one, value) for one in same_id):
                self._merge.skipped += 1
            else:
                self._rename(kind, value)

    def _rename(self, kind: Kind, value: Values) -> None:
        old = str(value["id"])
        self._numbers[kind.file] += 1
        fields = {name: part for name, part in value.items() if name not in ("id", "turn")}
        new = {**with_id(kind, self._numbers[kind.file], fields), IMPORTED_ID: old}
        self._merge.renamed[old] = str(new["id"])
        self._waiting.setdefault(kind.file, []).append(new)

    # Everything else.

    def _other(self, file: str, content: bytes, there: bytes | None) -> None:
        if there == content or file == ACCESS_LOG:
            return
        if there is not None and file == METADATA:
            self._metadata(content, there)
            return
        named = _stem(file, STATES, ".yaml") or _stem(file, ARTIFACTS, ".md")
        if self._building.purged and is_purged_file(self._building.purged, file, content):
            self._building.left_out.append(named or PROFILE.removesuffix(".yaml"))
        elif there is None and named and (file, named) in self._standing.deleted:
            self._gone.append(named)
        elif agent := _stem(file, STATES, ".yaml"):
            self._state(agent, file, content, there)
        elif artifact := _stem(file, ARTIFACTS, ".md"):
            self._artifact(artifact, file, content, there)
        elif self._building.session == "global" and file == PROFILE and there is not None:
            self._profile(content, there)
        elif file.startswith("inbox/") and not file.startswith("inbox/rejected/"):
            self._merge.notes.append(f"{file} was left out: such a drop may have been taken in long ago.")
        elif there is not None:
            self._merge.problems.append(f"{file} is there already and says something else; it was left as it is.")
        elif file == METADATA:
            self._merge.whole[file] = content
        else:
            self._merge.copies[file] = content

    def _state(self, agent: str, file: str, content: bytes, there: bytes | None) -> None:
        """One that differs from the agent's own goes to its earlier ones."""
        if there is None:
            self._merge.whole[file] = content
            self._merge.count += 1
            return
        try:
            state, own = (load_mapping(one, "agent_state", file) for one in (content, there))
            entry = state_history_entry(content, agent, self._at, OFF)
        except SMPError as error:
            self._merge.problems.append(f"{file}: {error}")
            return
        kind = state_history(agent)
        if entry is None or _same(state, own):
            self._merge.skipped += 1
            return
        earlier = format_of(kind).parse(self._standing.read(kind.file) or b"").records
        given = self._merge.added.get(kind.file, [])
        before = [record.value.get("state") for record in earlier] + [value.get("state") for value in given]
        if any(canonical(one) == canonical(entry[1]["state"]) for one in before):
            self._merge.skipped += 1
            return
        number = self._numbers.get(kind.file) or self._standing.highest(kind, self._standing.read(kind.file) or b"")
        self._numbers[kind.file] = number + 1
        if kind.file in self._merge.whole:
            grown = format_of(kind).insert(self._merge.whole[kind.file], with_id(kind, number + 1, entry[1]))
            self._merge.whole[kind.file] = grown
        else:
            self._merge.added.setdefault(kind.file, []).append(with_id(kind, number + 1, entry[1]))
        self._merge.count += 1

    def _artifact(self, name: str, file: str, content: bytes, there: bytes | None) -> None:
        """One whose name is taken gets another one, with its old one in its front matter."""
        if there is None:
            self._merge.whole[file] = content
            self._merge.count += 1
            return
        head, text = parse_artifact(content)
        for number in range(1, 1000):
            new = f"{name[:48]}-imported-{number}"
            found = self._standing.read(artifact_file(new))
            if found is None:
                self._merge.whole[artifact_file(new)] = artifact_content({**head, "id": new, IMPORTED_ID: name}, text, None)
                self._merge.renamed[name] = new
                self._merge.count += 1
                return
            its_head, its_text = parse_artifact(found)
            if its_head.get(IMPORTED_ID) == name and its_text == text and said(its_head) == said(head):
                self._merge.skipped += 1
                return

    def _metadata(self, content: bytes, there: bytes) -> None:
        """What is here stays; what another layout said of the session, for whoever writes it again, is added if there is none."""
        try:
            new, own = (load_mapping(one, "session", METADATA) for one in (content, there))
        except SMPError as error:
            self._merge.problems.append(f"{METADATA}: {error}")
            return
        if IMPORTED in new and IMPORTED not in own:
            self._merge.whole[METADATA] = replace_parts(there, "session", {IMPORTED: new[IMPORTED]}, METADATA)

    def _profile(self, content: bytes, there: bytes) -> None:
        """What is said only there is added; where both say something else, what is here stays."""
        try:
            new, own = (load_mapping(one, "user_profile", PROFILE) for one in (content, there))
        except SMPError as error:
            self._merge.problems.append(f"{PROFILE}: {error}")
            return
        if further := {name: value for name, value in new.items() if name not in own}:
            self._merge.whole[PROFILE] = replace_parts(there, "user_profile", further, PROFILE)
        for name in new:
            if name in own and canonical(new[name]) != canonical(own[name]):
                self._merge.problems.append(f"{PROFILE}: {name!r} says something else here, and was left as it is.")


def _stem(file: str, folder: str, ending: str) -> str:
    inner = file.removeprefix(f"{folder}/").removesuffix(ending)
    return inner if file == f"{folder}/{inner}{ending}" and is_file_id(inner) else ""


def _same(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether two memories of one id say the same; how they have decayed since is not what they say."""
    return _without(_settled(one), ("decay",)) == _without(_settled(other), ("decay",))


def _is_of_a_log(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Of one turn of a log, which refers to what was taken out of its text: more or less of that, as was asked for."""
    notes, others = one.get(IMPORTED), other.get(IMPORTED)
    return isinstance(notes, dict) and notes == others and notes.get("layout") == "markdown-log"


def _has_grown(kind: Kind, here: Mapping[str, Value], value: Mapping[str, Value]) -> bool:
    """Whether a log says more than it did, of the same turn or in the same mark."""
    text, longer = here.get(kind.text), value.get(kind.text)
    if not (isinstance(text, str) and text and isinstance(longer, str) and len(longer) > len(text) and longer.startswith(text)):
        return False
    same = ("timestamp", "turn_ref", kind.actor)
    return _is_of_a_log(here, value) and all(here.get(name) == value.get(name) for name in same)


def _longer(kind: Kind, here: Values, value: Values) -> Values:
    refs, further = here.get("memory_refs"), value.get("memory_refs")
    named: Value = list(dict.fromkeys([*(refs if isinstance(refs, list) else ()), *(further if isinstance(further, list) else ())]))
    rest = {name: part for name, part in here.items() if name != "decay"}
    return {**rest, **({"memory_refs": named} if named else {}), kind.text: value[kind.text],
            **({"decay": here["decay"]} if "decay" in here else {})}  # fmt: skip


def _is_changed_here(kind: Kind, here: Mapping[str, Value], value: Mapping[str, Value]) -> bool:
    """Whether it is the same memory, which somebody has changed since it came; a turn of a log also by hand, in its file."""
    if here.get("timestamp") is None or here.get("timestamp") != value.get("timestamp") or is_deleted(kind, here):
        return False
    own, theirs = here.get("updated_at"), value.get("updated_at")
    if isinstance(own, str):
        return not isinstance(theirs, str) or theirs < own
    return kind is TURN and _is_of_a_log(here, value) and said(here) != said(value)


def said(value: Mapping[str, Value]) -> bytes:
    """All but what may become another when it is imported."""
    return _without(_settled(value), _NOT_SAID)


def known_before(kind: Kind, value: Mapping[str, Value]) -> str | None:
    """What a memory was known as where it comes from: by its id there, or, where it stood only in a conversation, by its words."""
    if isinstance(old := value.get(IMPORTED_ID), str):
        return old
    notes = value.get(IMPORTED)
    return f"{value.get('turn_ref')}\n{value.get(kind.text)}" if isinstance(notes, dict) and notes.get("extracted") else None


def _settled(value: Mapping[str, Value]) -> Mapping[str, Value]:
    """Without what changes in the place that it comes from while it says the same."""
    notes, around = value.get(IMPORTED), value.get("context")
    if isinstance(notes, dict):
        notes = _unmarked(notes)
        if not notes:
            value = {name: part for name, part in value.items() if name != IMPORTED}
        elif notes is not value[IMPORTED]:
            value = {**value, IMPORTED: notes}
    if isinstance(notes, dict) and isinstance(whole := notes.get("original"), dict) and not whole.keys().isdisjoint(_CHANGING):
        rest: Value = {name: part for name, part in whole.items() if name not in _CHANGING}
        value = {**value, IMPORTED: {**notes, "original": rest}}
    if isinstance(around, dict) and _PARENT in around:
        value = {**value, "context": {name: part for name, part in around.items() if name != _PARENT}}
    return value


def _unmarked(notes: Values) -> Values:
    """Without what says that it is deleted there: a mark, or a field of an entry."""
    marked = {name: part for name in ("kept", "outside", "original")
              if isinstance(part := notes.get(name), dict) and not part.keys().isdisjoint(_MARKS)}  # fmt: skip
    if not marked and notes.keys().isdisjoint(_MARKS):
        return notes
    bare = {name: part for name, part in notes.items() if name not in _MARKS and name not in marked}
    further = {name: {field: value for field, value in part.items() if field not in _MARKS} for name, part in marked.items()}
    return {**bare, **{name: part for name, part in further.items() if part}}


def _without(value: Mapping[str, Value], names: Iterable[str]) -> bytes:
    return canonical({name: part for name, part in value.items() if name not in names})


def referring(value: Values, renamed: Mapping[str, str]) -> Values:
    """With references to what has got another id."""
    if not renamed or (value.keys().isdisjoint(_REFERENCES) and "context" not in value):
        return value
    new: dict[str, Any] = dict(value)
    for name in ("memory_refs", "references"):
        if isinstance(listed := value.get(name), list):
            new[name] = [renamed.get(one, one) if isinstance(one, str) else one for one in listed]
    for name in ("source", "target"):
        if isinstance(one := value.get(name), str):
            new[name] = renamed.get(one, one)
    if isinstance(around := value.get("context"), dict) and isinstance(parent := around.get(_PARENT), str) and parent in renamed:
        new["context"] = {**around, _PARENT: renamed[parent]}
    if isinstance(turn := value.get("turn_ref"), int) and (moved := renamed.get(f"turn-{turn}")):
        new["turn_ref"] = number_of(TURN, moved)
    return new
