"""Secrets that came in past the library: reported once each, or taken out of their files, as it is configured.

Only what is a secret by its shape is ever taken out of a file. What somebody's own pattern, or a kind of personal data, finds in
memories that are there already is reported: a pattern that is too wide must not empty a memory for good.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from smp_client import SMPError
from smp_client.privacy import leaks
from smp_client.privacy.leaks import Spotted, Target, redact
from smp_client.privacy.redact import Redaction, harmless, told
from smp_client.scopes import directory_of, is_archived

from ..log import FilteringBoundLogger
from .led_tree import LedTree

ROUNDS, ROUNDS_S = 10, 2.0  # of a thousand memories, or so many seconds: then others have their turn
AGAIN_S = 60.0  # before what could not be taken out is tried again
BY = "daemon"
# A packed archive is no text.
_UNREADABLE = (
    "SELECT scope, file, size, checksum, mtime_ns FROM files"
    " WHERE (bad > 0 OR problem IS NOT NULL) AND file <> 'archive.tar.gz'"
)
_ABOUT = "secrets in what cannot be read"
_ABOUT_UNINDEXED = "secrets in what is in no index"
_ABOUT_BESIDE = "secrets beside the memories"
_ADVICE = {
    _ABOUT: "it stands in what cannot be read; smp check names the lines",
    _ABOUT_UNINDEXED: "take it out by hand",
    _ABOUT_BESIDE: "it stands in no memory but in a comment, or in the head of a conversation; take it out by hand",
}
_IDLE_SHARE = 100.0


class Leaks:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self.unfinished: set[LedTree] = set()  # where more is to be looked at
        self._counted: dict[str, int] = {}  # how many places there were, by root
        self._said: dict[str, set[object]] = {}  # by root; so that each is said once in the life of a daemon
        self._tried: dict[tuple[str, Spotted], float] = {}  # when it is tried again
        # What was found in files as a whole, by root and what they are: by scope and file, with the state of the file.
        self._whole_files: dict[tuple[str, str], dict[tuple[str, str], tuple[tuple[object, ...], Counter[str]]]] = {}
        self._due_unindexed: dict[str, float] = {}

    def look(self, root: LedTree) -> None:
        """At what is new in the index."""
        redaction = root.memory.options.redaction or Redaction()
        if not redaction.enabled or redaction.unlocked_edits == "off":
            leaks.forget(root.index)
            for about in _ADVICE:
                root.problems.pop(about, None)
            return
        is_new = self._look(root, redaction)
        self._look_at_unreadable(root, redaction)
        self._look_at_unindexed(root, redaction)
        count = leaks.count(root.index)
        is_due = any(when <= time.monotonic() for when in self._tried.values())
        if not is_new and not is_due and self._counted.get(str(root.path)) == count:
            return
        self._counted[str(root.path)] = count
        found = leaks.found(root.index) if count else []
        # What comes back later is said again.
        self._said[str(root.path)] = self._said.get(str(root.path), set()) & {one.key for one in found}
        redacts = redaction.unlocked_edits == "redact"
        going = [one for one in found if redacts and one.is_by_shape and not is_archived(one.scope)]
        self._report(root, [one for one in found if one not in going], redacts=redacts)
        self._redact(root, going)

    def _look(self, root: LedTree, redaction: Redaction) -> bool:
        """Gives back whether there was anything to look at."""
        self.unfinished.discard(root)
        number, began = 0, time.monotonic()
        for number, _ in enumerate(leaks.look(root.index, redaction), 1):
            if number >= ROUNDS or time.monotonic() - began > ROUNDS_S:
                self.unfinished.add(root)
                break
        return number > 0

    def _report(self, root: LedTree, found: Iterable[Spotted], *, redacts: bool) -> None:
        said = self._said[str(root.path)]
        new = {one.key: one for one in found if one.key not in said}
        said.update(new)
        for one, line in leaks.with_lines(root.memory, new.values()):
            self._log.warning("secret", component="privacy", root=str(root.path), session_id=one.scope, file=one.file,
                              memory_id=harmless(one.id), line=line, kinds=dict(one.kinds),
                              advice=f"smp delete takes it out; {leaks.advice(one.is_by_shape, redacts=redacts)}")  # fmt: skip

    def _redact(self, root: LedTree, found: list[Spotted]) -> None:
        current = time.monotonic()
        self._tried = {known: when for known, when in self._tried.items() if when > current}
        due = [one for one in found if (str(root.path), one) not in self._tried]
        for (scope, file), group in groupby(due, key=lambda one: (one.scope, one.file)):
            spotted = list(group)
            self._tried |= {(str(root.path), one): current + AGAIN_S for one in spotted}
            self._redact_file(root, scope, file, spotted)

    def _redact_file(self, root: LedTree, scope: str, file: str, spotted: list[Spotted]) -> None:
        ids = [one.id for one in spotted if one.id]
        try:
            left, refused = redact(root.memory, Target(scope, file, ids), Redaction(), BY)
        except (OSError, SMPError) as error:
            # It may go later: somebody holds the lock, or has changed it just now.
            self._report(root, spotted, redacts=True)
            self._log.warning("secret stays", component="privacy", root=str(root.path), session_id=scope, file=file,
                              reason=harmless(str(error)))  # fmt: skip
            return
        self._report(root, [one for one in spotted if one.id in refused], redacts=True)
        kinds: Counter[str] = Counter()
        for one in spotted:
            kinds.update(dict(one.kinds) if one.id not in refused else {})
        done = [harmless(memory_id) for memory_id in ids if memory_id not in refused]
        self._log.info("redacted", component="privacy", root=str(root.path), session_id=scope, file=file, memories=done,
                       kinds=dict(kinds), left=left)  # fmt: skip
        root.note(f"{directory_of(scope)}/{file}")

    def _look_at_unreadable(self, root: LedTree, redaction: Redaction) -> None:
        """Bytes that are no memory are in no index: they can only be reported."""
        rows = root.index.connection.execute(_UNREADABLE).fetchall()
        named = self._named(root, _ABOUT, [(scope, file, tuple(state)) for scope, file, *state in rows], redaction)
        problem = f"What cannot be read holds what looks like a secret: {named}. smp check names the lines."
        _say(root, _ABOUT, problem if named else "")

    def _look_at_unindexed(self, root: LedTree, redaction: Redaction) -> None:
        """Nor are these; and there can be many, so that looking for them takes at most a hundredth of the time."""
        began = time.monotonic()
        if began < self._due_unindexed.get(str(root.path), 0.0):
            self.unfinished.add(root)
            return
        named = self._named(root, _ABOUT_UNINDEXED, leaks.unindexed(root.memory, root.index), redaction)
        _say(root, _ABOUT_UNINDEXED, f"What looks like a secret stands in {named}. Take it out by hand." if named else "")
        named = self._named(root, _ABOUT_BESIDE, leaks.with_something_beside(root.index), redaction)
        problem = f"A comment, or the head of a conversation, holds what looks like a secret: {named}. Take it out by hand."
        _say(root, _ABOUT_BESIDE, problem if named else "")
        self._due_unindexed[str(root.path)] = began + _IDLE_SHARE * (time.monotonic() - began)

    def _named(self, root: LedTree, about: str, files: Iterable[tuple[str, str, tuple[object, ...]]], redaction: Redaction) -> str:
        """Those of the files in which there is a secret, in words; one is read again only when it has changed."""
        known = self._whole_files.get((str(root.path), about), {})
        now: dict[tuple[str, str], tuple[tuple[object, ...], Counter[str]]] = {}
        for scope, file, state in files:
            before = known.get((scope, file))
            if before and before[0] == state:
                now[scope, file] = before
            elif (kinds := self._kinds_in_file(root, scope, file, about, redaction)) is not None:
                now[scope, file] = state, kinds
        self._whole_files[str(root.path), about] = now
        found = [f"{harmless(file)} in {scope} ({told(kinds)})" for (scope, file), (_, kinds) in now.items() if kinds]
        return ", ".join(found[:3]) + (f" and {len(found) - 3:,} more" if len(found) > 3 else "")

    def _kinds_in_file(self, root: LedTree, scope: str, file: str, about: str, redaction: Redaction) -> Counter[str] | None:
        """None where it is to be looked at again."""
        try:
            content = root.memory.tree.read(f"{directory_of(scope)}/{file}")
        except (OSError, SMPError):
            return Counter()
        is_indexed = about != _ABOUT_UNINDEXED
        text = leaks.beside(root.index, scope, file, content) if is_indexed else content.decode("utf-8", "replace")
        if text is None:
            return None
        kinds = redaction.spotted(text)
        if kinds:
            self._log.warning("secret", component="privacy", root=str(root.path), session_id=scope, file=harmless(file),
                              kinds=dict(kinds), advice=_ADVICE[about])  # fmt: skip
        return kinds


def _say(root: LedTree, about: str, problem: str) -> None:
    if problem:
        root.problems[about] = problem
    else:
        root.problems.pop(about, None)
