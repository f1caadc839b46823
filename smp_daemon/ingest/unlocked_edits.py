"""Secrets that came in past the library, as by an editor: reported once each, or redacted.

Only secrets by their shape are ever redacted in a file. Finds of a user's own pattern, and personal
data, are only reported: a pattern that is too wide must not empty a memory for good.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from smp_client import SMPError
from smp_client.disk.scopes import directory_of, is_archived
from smp_client.index import exposures
from smp_client.index.exposures import Spotted
from smp_client.privacy import leaks
from smp_client.privacy.leaks import Target, redact
from smp_client.redaction.redact import Redaction, harmless

if TYPE_CHECKING:
    from ..root import Root

ROUNDS, ROUNDS_S = 10, 2.0  # of a thousand memories, or so many seconds: then others have a turn
AGAIN_S = 60.0  # before a redaction that failed is tried again
BY = "daemon"


class UnlockedEdits:
    def __init__(self, root: Root) -> None:
        self.is_unfinished = False  # a part of the tree is still to be searched
        self._root = root
        self._count: int | None = None  # of secrets in memories, at the last look
        self._said: set[object] = set()  # each secret is reported once
        self._tried: dict[Spotted, float] = {}  # when a redaction is tried again

    def look(self) -> None:
        """Search new memories; report or redact the secrets."""
        root = self._root
        redaction = root.memory.options.redaction or Redaction()
        if not redaction.enabled or redaction.unlocked_edits == "off":
            if exposures.count(root.index):
                leaks.forget(root.index)
            return
        number, began, self.is_unfinished = 0, time.monotonic(), False
        for number, _ in enumerate(leaks.look(root.index, redaction), 1):
            if number >= ROUNDS or time.monotonic() - began > ROUNDS_S:
                self.is_unfinished = True
                break
        count, current = exposures.count(root.index), time.monotonic()
        is_due = any(when <= current for when in self._tried.values())
        if not number and not is_due and self._count == count:
            return
        self._count = count
        found = exposures.found(root.index) if count else []
        # A secret that comes back later is reported again.
        self._said &= {secret.key for secret in found}
        redacts = redaction.unlocked_edits == "redact"
        going = [s for s in found if redacts and s.is_by_shape and not is_archived(s.scope)]
        self._report(secret for secret in found if secret not in going)
        self._tried = {secret: when for secret, when in self._tried.items() if when > current}
        due = [secret for secret in going if secret not in self._tried]
        for (scope, file), group in groupby(due, key=lambda secret: (secret.scope, secret.file)):
            secrets = list(group)
            self._tried |= dict.fromkeys(secrets, current + AGAIN_S)
            self._redact(scope, file, secrets)

    def _report(self, found: Iterable[Spotted]) -> None:
        new = {secret.key: secret for secret in found if secret.key not in self._said}
        self._said.update(new)
        for secret in new.values():
            self._root.log.warning(
                "secret", component="privacy", session_id=secret.scope, file=secret.file,
                memory_id=harmless(secret.id), kinds=dict(secret.kinds),
                advice=exposures.ADVICE,
            )  # fmt: skip

    def _redact(self, scope: str, file: str, secrets: list[Spotted]) -> None:
        root = self._root
        log = root.log.bind(component="privacy", session_id=scope, file=file)
        ids = [secret.id for secret in secrets if secret.id]
        try:
            left, refused = redact(root.memory, Target(scope, file, ids), Redaction(), BY)
        except (OSError, SMPError) as error:
            # It may work later: somebody holds the lock, or has changed the file just now.
            self._report(secrets)
            log.warning("secret stays", reason=harmless(str(error)))
            return
        self._report(secret for secret in secrets if secret.id in refused)
        done = [secret for secret in secrets if secret.id not in refused]
        kinds = sum((Counter(dict(secret.kinds)) for secret in done), Counter[str]())
        log.info("redacted", memories=[harmless(secret.id) for secret in done if secret.id],
                 kinds=dict(kinds), left=left)  # fmt: skip
        root.note(f"{directory_of(scope)}/{file}")
