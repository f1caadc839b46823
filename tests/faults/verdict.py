"""The verdict on a tree after the soak: each memory against its ledger, and the tree in itself.

It works as whoever comes next would: sessions that are away are brought back, a daemon takes in the
drops, and the grace of old versions passes. Then every memory is looked for, wherever it may be.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import bytes_left
from daemons import index_contents, rebuilt_contents
from doors import EDITED, SHARED, SMALL
from ledger import DELETED, KEPT, NOWHERE, PURGED, TOKEN, VERSIONED, Book, Fate

from smp_client import Memory, SMPError
from smp_client.change import holdings as held
from smp_client.change.holdings import Holding, holdings
from smp_client.disk import rewrite
from smp_client.model.record import HISTORY
from smp_client.passes import tidy as tidying
from smp_client.passes.check import check, sentence

_LEFT = ("journal", "leaving", "retired", "tmp")
_OF_OTHERS = ("quarantined bytes", "a drop that was rejected")  # what hostile files leave
_SHOWN = 8  # of each sort of fault


@dataclass
class Verdict:
    """The faults, by their sort; none where all is well."""

    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: Counter[str] = field(default_factory=Counter)

    def add(self, sort: str, said: str) -> None:
        self.faults[sort].append(said)

    def lines(self) -> Iterator[str]:
        for sort, faults in self.faults.items():
            yield f"{sort}: {len(faults)}"
            yield from (f"  {one}" for one in faults[:_SHOWN])

    def dumped(self) -> str:
        return json.dumps({"faults": self.faults, "figures": self.figures})

    @classmethod
    def loaded(cls, text: str) -> Verdict:
        said = json.loads(text)
        return cls(defaultdict(list, said["faults"]), Counter(said["figures"]))


@dataclass(frozen=True)
class Found:
    """Where the holdings of a tree say that one memory is."""

    kept: list[Holding] = field(default_factory=list)
    deleted: list[Holding] = field(default_factory=list)

    @property
    def place(self) -> str:
        if self.kept:
            return KEPT
        return DELETED if self.deleted else NOWHERE


def bring_back(memory: Memory, verdict: Verdict) -> None:
    """Bring back the sessions that everybody works in. Somebody may have to finish a move first."""
    away = {one.session: memory.restore_session for one in memory.archived_sessions()}
    away |= {one.session: memory.undelete_session for one in memory.deleted_sessions()}
    for name, back in away.items():
        if name in (*SHARED, SMALL, EDITED):
            try:
                back(name)
            except SMPError as error:
                verdict.add("stuck", f"{name} cannot be brought back: {error}")
    there = {session.id for session in memory.sessions()}
    for name in {*SHARED, SMALL, EDITED} - there:
        verdict.add("lost", f"the session {name}")


def finished(memory: Memory, verdict: Verdict) -> None:
    """Let the grace of everything that SMP keeps for a while pass, and tidy up."""
    time.sleep(2 * rewrite.GRACE_S)
    tidying.ABANDONED_S = -1.0
    for _ in range(2):
        for problem in tidying.tidy(memory).problems:
            verdict.add("tidying", problem)
    for name in _LEFT:
        for left in memory.tree.list(f".smp/{name}"):
            verdict.add("left behind", f".smp/{name}/{left}")


def judge(root: Path, books: Sequence[Book]) -> Verdict:
    """Return everything that is wrong with a tree that nobody works on any more."""
    verdict = Verdict()
    memory = Memory(root)
    finished(memory, verdict)
    fates = {token: fate for book in books for token, fate in book.fates.items()}
    found = _found(memory, verdict)
    quarantined = _quarantined(root, verdict)
    for token in found.keys() - fates.keys():
        verdict.add("unknown", token)
    for fate in fates.values():
        _check_fate(fate, found[fate.token], quarantined, verdict)
        verdict.figures["|".join(sorted(fate.places))] += 1
    verdict.figures["memories"] = len(fates)
    _check_groups(found, books, verdict)
    _check_names(found, books, verdict)
    _check_bytes(root, fates, verdict)
    _check_tree(memory, verdict)
    _restore_all(memory, fates, found, verdict)
    memory.close()
    return verdict


def _sessions(memory: Memory) -> list[str]:
    places = ("active", "archived", "deleted")
    return sorted({name for place in places for name in memory.tree.directories(place)})


def _text(one: Holding) -> str:
    """Return the text of a memory; not of a summary or an earlier version, which quote others."""
    quotes = one.value.get("type") == "summary" or one.file == HISTORY
    if quotes or one.type in ("metadata", "agent_state"):
        return ""
    return json.dumps(one.value)


def _found(memory: Memory, verdict: Verdict) -> dict[str, Found]:
    found: dict[str, Found] = defaultdict(Found)
    problems: list[str] = []
    for name in _sessions(memory):
        for one in holdings(memory, name, held.EVERY, problems):
            for token in set(TOKEN.findall(_text(one))):
                if one.place in held.KEPT:
                    found[token].kept.append(one)
                elif one.place == "deleted":
                    found[token].deleted.append(one)
    for problem in problems:
        verdict.add("unreadable", problem)
    return found


def _quarantined(root: Path, verdict: Verdict) -> dict[str, str]:
    """Return the memories of which quarantine holds bytes, and their versions, with the reason."""
    found: dict[str, str] = {}
    for path in sorted((root / "quarantine").rglob("*.bytes")):
        note = path.with_name(f"{path.name.removesuffix('.bytes')}.note.yaml").read_text()
        why = note.partition("why: ")[2].strip()
        verdict.figures[f"quarantined: {why}"] += 1
        text = path.read_text(errors="replace")
        for token, version in VERSIONED.findall(text):
            found[token] = found[f"{token} v{version}"] = f"{path.relative_to(root)}: {why}"
    return found


def _check_fate(fate: Fate, one: Found, quarantined: Mapping[str, str], verdict: Verdict) -> None:
    """A memory is where its ledger says, once, in a version that was written."""
    holds = [*one.kept, *one.deleted]
    where = ", ".join(f"{held.place} {held.where} {held.id}" for held in holds)
    said = f"{fate.door} {fate.name or fate.session} {fate.token} {sorted(fate.places)}: {where}"
    if len(holds) > 1:
        verdict.add("doubled", said)
    wanted = fate.places | ({NOWHERE} if PURGED in fate.places else set())
    if one.place not in wanted:
        # The daemon may have indexed an edit that went to quarantine: then it keeps the memory
        # as one that somebody removed from its file.
        aside = (NOWHERE, DELETED) if fate.door == "editor" else (NOWHERE,)
        if one.place in aside and fate.token in quarantined:
            _note_aside(fate, f"{said} {quarantined[fate.token]}", verdict)
        elif one.place == NOWHERE or (one.place, fate.places) == (DELETED, {KEPT}):
            verdict.add("lost", said)
        else:
            verdict.add("resurrected", said)
    for holding in one.kept:
        for token, number in VERSIONED.findall(_text(holding)):
            is_wanted = fate.acknowledged_version <= int(number) <= fate.latest_version
            if token == fate.token and not is_wanted:
                wanted = f"{fate.acknowledged_version} to {fate.latest_version}"
                aside = quarantined.get(f"{token} v{fate.acknowledged_version}")
                if aside:
                    _note_aside(fate, f"{said}: v{number}, not {wanted}; {aside}", verdict)
                else:
                    verdict.add("update lost", f"{said}: v{number}, not {wanted}")


def _note_aside(fate: Fate, said: str, verdict: Verdict) -> None:
    """Note a memory that only quarantine has: nobody can merge a file that an editor replaced."""
    if fate.door == "editor":
        verdict.figures["edits in quarantine"] += 1
    else:
        verdict.add("only in quarantine", said)


def _check_groups(found: Mapping[str, Found], books: Sequence[Book], verdict: Verdict) -> None:
    """A transaction is there as a whole or not at all."""
    for book in books:
        for group in book.groups:
            places = {found[token].place for token in group}
            if len(places) > 1:
                verdict.add("half a transaction", f"{group}: {sorted(places)}")


def _check_names(found: Mapping[str, Found], books: Sequence[Book], verdict: Verdict) -> None:
    """No id of a session was ever given to two memories."""
    owners: dict[str, set[str]] = defaultdict(set)
    for book in books:
        for name, token in book.names:
            owners[name].add(token)
    for token, one in found.items():
        for holding in (*one.kept, *one.deleted):
            owners[f"{holding.session}/{holding.id}"].add(token)
    for name, tokens in owners.items():
        if len(tokens) > 1:
            verdict.add("id given twice", f"{name}: {sorted(tokens)}")


def _check_bytes(root: Path, fates: Mapping[str, Fate], verdict: Verdict) -> None:
    """No byte of a purged memory is anywhere below the root."""
    purged = {token for token, fate in fates.items() if fate.places == {PURGED}}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            left = {one for part in bytes_left.parts(path) for one in _tokens(part)} & purged
            for token in sorted(left):
                verdict.add("purged bytes", f"{token} in {path.relative_to(root)}")
    verdict.figures["purged memories sought"] = len(purged)


def _tokens(content: bytes) -> list[str]:
    return TOKEN.findall(content.decode("utf-8", "replace"))


def _check_tree(memory: Memory, verdict: Verdict) -> None:
    """The check is clean, and the index is what a rebuild would give."""
    for complaint in check(memory):
        if complaint.problem not in _OF_OTHERS:
            verdict.add("check", sentence(complaint))
    memory.search("soak")
    memory.close()
    if index_contents(memory.root) != rebuilt_contents(memory.root):
        verdict.add("index", "it differs from a rebuilt one")


def _restore_all(
    memory: Memory, fates: Mapping[str, Fate], found: Mapping[str, Found], verdict: Verdict
) -> None:
    """Everything that was evicted or deleted can be brought back into its file, once."""
    for session in memory.sessions():
        try:
            for problem in session.bring_back().problems:
                verdict.add("bring back", problem)
            batches = {one.batch for one in session.deleted() if one.place == "deleted"}
            for batch in sorted(batches):
                session.restore_batch(batch)
        except SMPError as error:
            verdict.add("restore", f"{session.id}: {error}")
    counts: Counter[str] = Counter()
    there = {session.id for session in memory.sessions()}
    for name in there:
        for one in holdings(memory, name, ("active",), []):
            counts.update(set(TOKEN.findall(_text(one))))
    for token, fate in fates.items():
        name = fate.name.partition("/")[0] or fate.session
        is_sure = fate.places <= {KEPT, DELETED} and name in there
        if is_sure and found[token].place != NOWHERE and counts[token] != 1:
            verdict.add("restored", f"{fate.door} {fate.name} {token} stands {counts[token]} times")
