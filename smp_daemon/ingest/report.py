"""The log of bad files: each problem is logged once, and again when the file has changed."""

from __future__ import annotations

from smp_client.change.references import taken_by_hand
from smp_client.index.doubles import doubles
from smp_client.redaction.redact import harmless

from ..log import FilteringBoundLogger
from .indexer import Taken
from .led_tree import LedTree

_SHOWN = 10


class Report:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._said: dict[tuple[str, str, str], object] = {}  # the last problem, by subject

    def say(self, root: LedTree, taken: Taken) -> None:
        """Log the problems of the sessions that have changed."""
        for (scope, file), gone in taken.gone.items():
            self._say_gone(root, scope, file, taken_by_hand(root.memory, scope, gone))
        for scope in sorted(taken.scopes):
            self._say_unreadable(root, scope)
            self._say_doubles(root, scope)

    def _say_gone(self, root: LedTree, scope: str, file: str, ids: list[str]) -> None:
        if ids:
            advice = "no deletion took them: an editor did, or saved an older copy of the file"
            self._log.warning("memories gone", component="indexer", root=str(root.path),
                              session_id=scope, file=file, count=len(ids),
                              memories=[harmless(id) for id in ids[:_SHOWN]], advice=advice)

    def _say_unreadable(self, root: LedTree, scope: str) -> None:
        for (_, file), state in root.index.files(scope).items():
            is_bad = state.bad or state.problem
            about = (state.checksum, state.bad, state.problem) if is_bad else None
            if self._is_news(("unreadable", str(root.path), f"{scope}/{file}"), about):
                self._log.warning("unreadable", component="indexer", root=str(root.path),
                                  session_id=scope, file=file, records=state.bad,
                                  problem=state.problem, advice="smp check names the lines")

    def _say_doubles(self, root: LedTree, scope: str) -> None:
        found = [(double.file, double.id, double.records) for double in doubles(root.index, scope)]
        if self._is_news(("doubles", str(root.path), scope), tuple(found) or None):
            ids = [harmless(id) for _, id, _ in found]
            advice = "all are found, and the id names the last; give the others an id of their own"
            self._log.warning("one id, several memories", component="indexer", root=str(root.path),
                              session_id=scope, count=len(ids), memories=ids[:_SHOWN],
                              files=sorted({file for file, _, _ in found}), advice=advice)

    def _is_news(self, key: tuple[str, str, str], about: object) -> bool:
        """Return whether this is to be logged now; None means that nothing is wrong any more."""
        before = self._said.pop(key, None)
        if about is not None:
            self._said[key] = about
        return about is not None and about != before
