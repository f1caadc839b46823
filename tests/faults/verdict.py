"""The verdict on a tree after the soak: each memory against its ledger, and the tree in itself.

It works as whoever comes next would: sessions that are away are brought back, a daemon takes in the
drops, and the grace of old versions passes. Then every memory is looked for, wherever it may be.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
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
from smp_client.passes import tidy as tidying
from smp_client.passes.check import check, sentence

_LEFT = ("journal", "leaving", "retired", "tmp")
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
    _check_fates(_found(memory, verdict), fates, verdict)
    _check_groups(_found(memory, Verdict()), books, verdict)
    _check_names(memory, books, verdict)
    _check_bytes(root, fates, verdict)
    _check_quarantine(memory, fates, verdict)
    _check_tree(memory, verdict)
    _restore_all(memory, fates, verdict)
    verdict.figures["memories"] = len(fates)
    for fate in fates.values():
        verdict.figures["|".join(sorted(fate.places))] += 1
    memory.close()
    return verdict


def _sessions(memory: Memory) -> list[str]:
    places = ("active", "archived", "deleted")
    return sorted({name for place in places for name in memory.tree.directories(place)})


def _text(one: Holding) -> str:
    """Return the text of a memory; that of a summary is of other memories."""
    if one.value.get("type") == "summary" or one.type in ("metadata", "agent_state"):
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


def _where(some: Iterable[Holding]) -> str:
    return ", ".join(f"{one.place} {one.where} {one.id}" for one in some)


def _check_fates(found: dict[str, Found], fates: dict[str, Fate], verdict: Verdict) -> None:
    for token, fate in fates.items():
        one = found.get(token, Found())
        said = f"{fate.door} {fate.name or fate.session} {token} {sorted(fate.places)}"
        if len(one.kept) + len(one.deleted) > 1:
            verdict.add("doubled", f"{said}: {_where([*one.kept, *one.deleted])}")
        wanted = fate.places | ({NOWHERE} if PURGED in fate.places else set())
        if one.place not in wanted:
            sort = "resurrected" if one.place != NOWHERE and NOWHERE in wanted else "lost"
            sort = "resurrected" if one.place == KEPT else sort
            verdict.add(sort, f"{said}: {_where([*one.kept, *one.deleted]) or 'nowhere'}")
        for holding in one.kept:
            _check_version(holding, fate, verdict)
    for token in found.keys() - fates.keys():
        verdict.add("unknown", token)


def _check_version(holding: Holding, fate: Fate, verdict: Verdict) -> None:
    for token, number in VERSIONED.findall(_text(holding)):
        if token == fate.token:
            version = int(number)
            if not fate.acknowledged_version <= version <= fate.latest_version:
                wanted = f"{fate.acknowledged_version} to {fate.latest_version}"
                verdict.add("update lost", f"{fate.name} {token} v{version}, not {wanted}")


def _check_groups(found: dict[str, Found], books: Sequence[Book], verdict: Verdict) -> None:
    """A transaction is there as a whole or not at all."""
    for book in books:
        for group in book.groups:
            places = {found.get(token, Found()).place for token in group}
            if len(places) > 1:
                verdict.add("half a transaction", f"{group}: {sorted(places)}")


def _check_names(memory: Memory, books: Sequence[Book], verdict: Verdict) -> None:
    """No id of a session was ever given to two memories."""
    owners: dict[str, set[str]] = defaultdict(set)
    for book in books:
        for name, token in book.names:
            owners[name].add(token)
    for session in _sessions(memory):
        for one in holdings(memory, session, held.EVERY, []):
            for token in TOKEN.findall(_text(one)):
                owners[f"{session}/{one.id}"].add(token)
    for name, tokens in owners.items():
        if len(tokens) > 1:
            verdict.add("id given twice", f"{name}: {sorted(tokens)}")


def _check_bytes(root: Path, fates: dict[str, Fate], verdict: Verdict) -> None:
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


def _check_quarantine(memory: Memory, fates: dict[str, Fate], verdict: Verdict) -> None:
    """A quarantined piece holds no acknowledged memory that is not where it belongs as well."""
    found = _found(memory, Verdict())
    for path in sorted((memory.root / "quarantine").rglob("*.bytes")):
        verdict.figures["quarantined pieces"] += 1
        note = path.with_name(f"{path.name.removesuffix('.bytes')}.note.yaml").read_text()
        why = note.partition("why: ")[2].strip()
        verdict.figures[f"quarantined: {why}"] += 1
        for token in set(_tokens(path.read_bytes())):
            fate = fates.get(token)
            is_missing = found.get(token, Found()).place == NOWHERE
            if fate is not None and NOWHERE not in fate.places and is_missing:
                verdict.add("only in quarantine", f"{fate.door} {token} in {path}: {why}")


def _check_tree(memory: Memory, verdict: Verdict) -> None:
    """The check is clean, and the index is what a rebuild would give."""
    for complaint in check(memory):
        if complaint.problem != "quarantined bytes":
            verdict.add("check", sentence(complaint))
    for session in memory.sessions():
        for name in memory.tree.list(f"active/{session.id}/inbox"):
            if not name.startswith("."):
                verdict.add("inbox", f"{session.id}/{name}")
    memory.search("soak")
    memory.close()
    if index_contents(memory.root) != rebuilt_contents(memory.root):
        verdict.add("index", "it differs from a rebuilt one")


def _restore_all(memory: Memory, fates: dict[str, Fate], verdict: Verdict) -> None:
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
        if is_sure and counts[token] != 1:
            verdict.add("restored", f"{fate.door} {fate.name} {token} stands {counts[token]} times")
