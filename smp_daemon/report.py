"""What the log says of the files that were indexed: each thing once, and again only when the file has changed."""

from __future__ import annotations

from smp_client.privacy.redact import harmless
from smp_client.questions.doubles import doubles
from smp_client.references import taken_by_hand

from .ingest.indexer import Taken
from .log import FilteringBoundLogger
from .root import Root

_SHOWN = 10


class Report:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._said: dict[tuple[str, str, str], object] = {}  # what was last said of a file, by root, scope and file

    def say(self, root: Root, taken: Taken) -> None:
        """Say what is wrong with the files of the scopes that have changed."""
        for (scope, file), gone in taken.gone.items():
            self._say_gone(root, scope, file, taken_by_hand(root.memory, scope, gone))
        for scope in sorted(taken.scopes):
            self._say_unreadable(root, scope)
            self._say_doubles(root, scope)

    def _say_gone(self, root: Root, scope: str, file: str, ids: list[str]) -> None:
        if ids:
            self._log.warning("memories gone", component="indexer", root=str(root.path), session_id=scope, file=file,
                              count=len(ids), memories=[harmless(memory_id) for memory_id in ids[:_SHOWN]],
                              advice="no deletion took them: an editor did, or saved an older copy of the file")  # fmt: skip

    def _say_unreadable(self, root: Root, scope: str) -> None:
        for (_, file), state in root.index.files(scope).items():
            about = (state.checksum, state.bad, state.problem) if state.bad or state.problem else None
            if self._is_news(("unreadable", str(root.path), f"{scope}/{file}"), about):
                self._log.warning("unreadable", component="indexer", root=str(root.path), session_id=scope, file=file,
                                  records=state.bad, problem=state.problem, advice="smp check names the lines")  # fmt: skip

    def _say_doubles(self, root: Root, scope: str) -> None:
        found = [(double.file, double.id, double.records) for double in doubles(root.index, scope)]
        if self._is_news(("doubles", str(root.path), scope), tuple(found) or None):
            ids = [harmless(memory_id) for _, memory_id, _ in found]
            self._log.warning("one id, several memories", component="indexer", root=str(root.path), session_id=scope,
                              count=len(ids), memories=ids[:_SHOWN], files=sorted({file for file, _, _ in found}),
                              advice="all are found, and the id names the last; give the others an id of their own")  # fmt: skip

    def _is_news(self, key: tuple[str, str, str], about: object) -> bool:
        """Whether this is to be said now; None says that nothing is wrong any more."""
        before = self._said.pop(key, None)
        if about is not None:
            self._said[key] = about
        return about is not None and about != before
