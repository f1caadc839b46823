"""The log of bad files: each problem is logged once, and again when the file has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smp_client.change.references import taken_by_hand
from smp_client.redaction.redact import harmless

from .indexer import Taken

if TYPE_CHECKING:
    from ..root import Root

_SHOWN = 10


class Report:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._said: dict[tuple[str, str], object] = {}  # the last problem, by subject

    def say(self, taken: Taken) -> None:
        """Log the problems of the sessions that have changed."""
        root = self._root
        for (scope, file), gone in taken.gone.items():
            if ids := taken_by_hand(root.memory, scope, gone):
                advice = "no deletion took them: an editor did, or saved an older copy of the file"
                shown = [harmless(id) for id in ids[:_SHOWN]]
                root.log.warning("memories gone", component="indexer", session_id=scope, file=file,
                                 count=len(ids), memories=shown, advice=advice)  # fmt: skip
        for scope in sorted(taken.scopes):
            for (_, file), state in root.index.files(scope).items():
                is_bad = state.bad or state.problem
                about = (state.checksum, state.bad, state.problem) if is_bad else None
                if self._is_news((scope, file), about):
                    root.log.warning("unreadable", component="indexer", session_id=scope, file=file,
                                     records=state.bad, problem=state.problem,
                                     advice="smp check names the lines")  # fmt: skip
            found = root.index.doubles(scope)
            if self._is_news((scope, ""), tuple(found) or None):
                ids = [harmless(id) for _, id, _ in found]
                advice = "the id names the last of them; give the others an id of their own"
                root.log.warning("one id, several memories", component="indexer", session_id=scope,
                                 count=len(ids), memories=ids[:_SHOWN],
                                 files=sorted({file for file, _, _ in found}),
                                 advice=advice)  # fmt: skip

    def _is_news(self, key: tuple[str, str], about: object) -> bool:
        """Return whether this is to be logged now; None means that nothing is wrong any more."""
        before = self._said.pop(key, None)
        if about is not None:
            self._said[key] = about
        return about is not None and about != before
