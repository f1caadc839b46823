"""Secrets that came in past the library, as by an editor: reported once each, or redacted.

Only secrets by their shape are ever redacted in a file. Finds of a user's own pattern, and personal
data, are only reported: a pattern that is too wide must not empty a memory for good.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from smp_client import SMPError
from smp_client.disk.scopes import directory_of, is_archived
from smp_client.index import exposures
from smp_client.index.exposures import Spotted
from smp_client.privacy import leaks
from smp_client.privacy.leaks import Target, redact
from smp_client.redaction.redact import Redaction, harmless, told

from ..log import FilteringBoundLogger
from .led_tree import LedTree

ROUNDS, ROUNDS_S = 10, 2.0  # of a thousand memories, or so many seconds: then others have a turn
AGAIN_S = 60.0  # before a redaction that failed is tried again
BY = "daemon"
_RESTING_S = 3.0  # an old version of a file is kept for longer than a slow writer needs
_IDLE_SHARE = 100.0
# A packed archive is no text.
_UNREADABLE = (
    "SELECT scope, file, size, checksum, mtime_ns FROM files"
    " WHERE (bad > 0 OR problem IS NOT NULL) AND file <> 'archive.tar.gz'"
)

File = tuple[str, str, tuple[object, ...]]  # session, name, and a state that changes with the file


class Outside(NamedTuple):
    """Text that is in no memory, where a secret can only be reported."""

    name: str
    files: Callable[[LedTree], Iterable[File]]
    problem: str
    advice: str
    is_indexed: bool = True


def _unreadable(root: LedTree) -> Iterable[File]:
    for scope, file, *state in root.index.connection.execute(_UNREADABLE).fetchall():
        yield scope, file, tuple(state)


_OUTSIDE = (
    Outside("secrets in what cannot be read", _unreadable,
            "What cannot be read holds what looks like a secret: {}. smp check names the lines.",
            "it stands in what cannot be read; smp check names the lines"),
    Outside("secrets in what is in no index",
            lambda root: leaks.unindexed(root.memory, root.index),
            "What looks like a secret stands in {}. Take it out by hand.",
            "take it out by hand", is_indexed=False),
    Outside("secrets beside the memories",
            lambda root: leaks.with_something_beside(root.index),
            "A comment, or the head of a conversation, holds what looks like a secret: {}."
            " Take it out by hand.",
            "it stands in no memory but in a comment, or in the head of a conversation;"
            " take it out by hand"),
)  # fmt: skip


class UnlockedEdits:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self.unfinished: set[LedTree] = set()  # trees of which a part is still to be searched
        self._counted: dict[str, int] = {}  # the number of secrets at the last look, by root
        self._said: dict[str, set[object]] = {}  # by root; each is reported once
        self._tried: dict[tuple[str, Spotted], float] = {}  # when a redaction is tried again
        # The kinds of secrets in each file, with the file's state; by root and kind of text.
        self._kinds: dict[tuple[str, str], dict[tuple[str, str], tuple[object, Counter[str]]]] = {}
        self._outside_due: dict[str, float] = {}
        self.old_versions_due = math.inf  # when tidying can remove what redacted files said before

    def look(self, root: LedTree) -> None:
        """Search new memories and other text of a tree; report or redact the secrets."""
        redaction = root.memory.options.redaction or Redaction()
        if not redaction.enabled or redaction.unlocked_edits == "off":
            leaks.forget(root.index)
            for outside in _OUTSIDE:
                root.problems.pop(outside.name, None)
            return
        is_new = self._search_memories(root, redaction)
        self._search_outside(root)
        path, count = str(root.path), exposures.count(root.index)
        is_due = any(when <= time.monotonic() for when in self._tried.values())
        if not is_new and not is_due and self._counted.get(path) == count:
            return
        self._counted[path] = count
        found = exposures.found(root.index) if count else []
        # A secret that comes back later is reported again.
        self._said[path] = self._said.get(path, set()) & {secret.key for secret in found}
        redacts = redaction.unlocked_edits == "redact"
        going = [s for s in found if redacts and s.is_by_shape and not is_archived(s.scope)]
        self._report(root, [secret for secret in found if secret not in going], redacts=redacts)
        self._redact(root, going)

    def _search_memories(self, root: LedTree, redaction: Redaction) -> bool:
        """Search the memories that are new in the index. Return whether there were any."""
        self.unfinished.discard(root)
        number, began = 0, time.monotonic()
        for number, _ in enumerate(leaks.look(root.index, redaction), 1):
            if number >= ROUNDS or time.monotonic() - began > ROUNDS_S:
                self.unfinished.add(root)
                break
        return number > 0

    def _report(self, root: LedTree, found: Iterable[Spotted], *, redacts: bool) -> None:
        said = self._said[str(root.path)]
        new = {secret.key: secret for secret in found if secret.key not in said}
        said.update(new)
        for secret, line in leaks.with_lines(root.memory, new.values()):
            advice = exposures.advice(secret.is_by_shape, redacts=redacts)
            self._log.warning("secret", component="privacy", root=str(root.path),
                              session_id=secret.scope, file=secret.file,
                              memory_id=harmless(secret.id), line=line, kinds=dict(secret.kinds),
                              advice=f"smp delete takes it out; {advice}")  # fmt: skip

    def _redact(self, root: LedTree, found: list[Spotted]) -> None:
        current = time.monotonic()
        self._tried = {known: when for known, when in self._tried.items() if when > current}
        due = [secret for secret in found if (str(root.path), secret) not in self._tried]
        for (scope, file), group in groupby(due, key=lambda secret: (secret.scope, secret.file)):
            secrets = list(group)
            self._tried |= {(str(root.path), secret): current + AGAIN_S for secret in secrets}
            self._redact_file(root, scope, file, secrets)

    def _redact_file(self, root: LedTree, scope: str, file: str, secrets: list[Spotted]) -> None:
        log = self._log.bind(component="privacy", root=str(root.path), session_id=scope, file=file)
        ids = [secret.id for secret in secrets if secret.id]
        try:
            left, refused = redact(root.memory, Target(scope, file, ids), Redaction(), BY)
        except (OSError, SMPError) as error:
            # It may work later: somebody holds the lock, or has changed the file just now.
            self._report(root, secrets, redacts=True)
            log.warning("secret stays", reason=harmless(str(error)))
            return
        self._report(root, [secret for secret in secrets if secret.id in refused], redacts=True)
        kinds: Counter[str] = Counter()
        for secret in secrets:
            kinds.update(dict(secret.kinds) if secret.id not in refused else {})
        done = [harmless(memory_id) for memory_id in ids if memory_id not in refused]
        log.info("redacted", memories=done, kinds=dict(kinds), left=left)
        root.note(f"{directory_of(scope)}/{file}")
        self.old_versions_due = time.monotonic() + _RESTING_S

    def _search_outside(self, root: LedTree) -> None:
        """Search text that is in no memory, in at most a hundredth of the time."""
        path, began = str(root.path), time.monotonic()
        if began < self._outside_due.get(path, 0.0):
            self.unfinished.add(root)
            return
        for outside in _OUTSIDE:
            known = self._kinds.get((path, outside.name), {})
            now: dict[tuple[str, str], tuple[object, Counter[str]]] = {}
            for scope, file, state in outside.files(root):
                # A file is read again only when it has changed.
                if known.get((scope, file), (None,))[0] == state:
                    now[scope, file] = known[scope, file]
                elif (kinds := self._kinds_in_file(root, scope, file, outside)) is not None:
                    now[scope, file] = state, kinds
            self._kinds[path, outside.name] = now
            places = [f"{harmless(file)} in {scope} ({told(kinds)})"
                      for (scope, file), (_, kinds) in now.items() if kinds]  # fmt: skip
            more = f" and {len(places) - 3:,} more" if len(places) > 3 else ""
            root.problems.pop(outside.name, None)
            if places:
                root.problems[outside.name] = outside.problem.format(", ".join(places[:3]) + more)
        self._outside_due[path] = began + _IDLE_SHARE * (time.monotonic() - began)

    def _kinds_in_file(
        self, root: LedTree, scope: str, file: str, outside: Outside
    ) -> Counter[str] | None:
        """Return the kinds of secrets in a file; None where it is to be searched again."""
        try:
            content = root.memory.tree.read(f"{directory_of(scope)}/{file}")
        except (OSError, SMPError):
            return Counter()
        if outside.is_indexed:
            text = leaks.beside(root.index, scope, file, content)
            if text is None:
                return None
        else:
            text = content.decode("utf-8", "replace")
        kinds = (root.memory.options.redaction or Redaction()).spotted(text)
        if kinds:
            self._log.warning("secret", component="privacy", root=str(root.path),
                              session_id=scope, file=harmless(file), kinds=dict(kinds),
                              advice=outside.advice)  # fmt: skip
        return kinds
