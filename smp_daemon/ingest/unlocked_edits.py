"""Secrets that came in past the library, as by an editor: reported once each, or redacted.

Only secrets of a known shape are ever redacted in a file. Finds of a user's own pattern, and
personal data, are only reported: a pattern that is too wide must not empty a memory for good.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from smp_client import SMPError
from smp_client.disk.place import directory_of, is_archived
from smp_client.index.status import ADVICE, Leak, known_leaks
from smp_client.privacy import leaks
from smp_client.redaction.redact import Redaction, harmless
from smp_client.redaction.secrets import SECRET_KINDS

if TYPE_CHECKING:
    from ..root import Root

ROUNDS, ROUNDS_S = 100, 2.0  # of a hundred memories, or so many seconds: then others have a turn
AGAIN_S = 60.0  # before a redaction that failed is tried again
BY = "daemon"
_SHAPES = frozenset(SECRET_KINDS)


class UnlockedEdits:
    def __init__(self, root: Root) -> None:
        self.is_unfinished = False  # whether memories are left to be searched
        self._root = root
        self._reported: set[Leak] = set()  # each secret is reported once
        self._retry_at: dict[Leak, float] = {}

    def look(self) -> None:
        """Search new memories for secrets, and report or redact each secret."""
        root, began = self._root, time.monotonic()
        redaction = root.memory.options.redaction or Redaction()
        if not redaction.enabled or redaction.unlocked_edits == "off":
            if known_leaks(root.index):
                leaks.forget(root.index)
            return
        self.is_unfinished = False
        for rounds, _ in enumerate(leaks.look(root.index, redaction), 1):
            if rounds >= ROUNDS or time.monotonic() - began > ROUNDS_S:
                self.is_unfinished = True
                break
        secrets = known_leaks(root.index)
        # A secret that comes back later is reported again.
        self._reported &= {*secrets}
        self._retry_at = {secret: at for secret, at in self._retry_at.items() if at > began}
        for (scope, file), group in groupby(secrets, key=lambda one: (one.scope, one.file)):
            in_file = list(group)
            redacts = redaction.unlocked_edits == "redact" and not is_archived(scope)
            redactable = [
                secret for secret in in_file if redacts and _SHAPES & {*dict(secret.kinds)}
            ]
            self._report(secret for secret in in_file if secret not in redactable)
            if due := [secret for secret in redactable if secret not in self._retry_at]:
                self._retry_at |= dict.fromkeys(due, began + AGAIN_S)
                self._redact(scope, file, due)

    def _report(self, secrets: Iterable[Leak]) -> None:
        new = [secret for secret in dict.fromkeys(secrets) if secret not in self._reported]
        self._reported.update(new)
        for secret in new:
            self._root.log.warning(
                "secret", component="privacy", session_id=secret.scope, file=secret.file,
                memory_id=harmless(secret.id), kinds=dict(secret.kinds),
                advice=ADVICE,
            )  # fmt: skip

    def _redact(self, scope: str, file: str, secrets: list[Leak]) -> None:
        root = self._root
        log = root.log.bind(component="privacy", session_id=scope, file=file)
        ids = [secret.id for secret in secrets if secret.id]
        try:
            ids, left = leaks.redact(root.memory, scope, file, ids, BY)
        except (OSError, SMPError) as error:
            # A retry may succeed: another writer holds the lock, or has just changed the file.
            self._report(secrets)
            log.warning("secret stays", reason=harmless(str(error)))
            return
        self._report(secret for secret in secrets if secret.id and secret.id not in ids)
        done = [secret for secret in secrets if not secret.id or secret.id in ids]
        shapes = (Counter({k: n for k, n in one.kinds if k in _SHAPES}) for one in done)
        log.info("redacted", memories=[harmless(secret.id) for secret in done if secret.id],
                 kinds=dict(sum(shapes, Counter[str]())), left=left)  # fmt: skip
        root.note(f"{directory_of(scope)}/{file}")
