"""Deleting, restoring and anonymising, as methods of a session, of `global` and of the memory.

The work is done in `change/` and `privacy/`, imported late: a program that only writes needs neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from .model.record import Record, check_memory_id

if TYPE_CHECKING:
    from .ask.when import When
    from .change.references import Reference
    from .change.restore import Deleted
    from .change.select import Selection
    from .memory import Memory
    from .model.outcome import Outcome
    from .privacy.anonymise import Anonymized, AnonymousExport
    from .privacy.find import Occurrence
    from .privacy.placeholder import Anonymization
    from .session import RecordFiles


_Done = TypeVar("_Done")


class Deletion:
    """Of a session, or of `global`; the same for one in the archive are methods of `Memory`."""

    def delete(
        self, id: str | Sequence[str] | None = None, *, reason: str, topic: str | None = None, agent: str | None = None,
        since: When | None = None, until: When | None = None, types: Sequence[str] = (), tags: Sequence[str] = (),
        text: str | None = None, deleted_by: str = "user", dry_run: bool = False,
    ) -> Outcome:  # fmt: skip
        """Takes memories out, all or none: those with these ids, or all that fit everything else that is given; of several types
        or tags, one is enough. Until their deadline `restore` brings them back.
        """
        files = cast("RecordFiles", self)
        done = files.memory.delete(
            files.scope.name, id, reason=reason, topic=topic, agent=agent, since=since, until=until, types=types, tags=tags,
            text=text, deleted_by=deleted_by, dry_run=dry_run,
        )  # fmt: skip
        return done if dry_run else _used(files, done)

    def anonymize(
        self, id: str | Sequence[str] | None = None, *, names: str | Sequence[str] = (), projects: str | Sequence[str] = (),
        config: Anonymization | None = None, reason: str = "anonymised", by: str = "user", dry_run: bool = False, now: bool = False,
    ) -> Anonymized:  # fmt: skip
        """Replaces what names somebody, in all memories or in some, by placeholders; see `privacy/anonymise.py`.

        Until its deadline `restore_batch` undoes it; with `now` what was there is erased at once.
        """
        files = cast("RecordFiles", self)
        done = files.memory.anonymize(files.scope.name, id, names=names, projects=projects, config=config, reason=reason, by=by,
                                          dry_run=dry_run, now=now)  # fmt: skip
        return done if dry_run else _used(files, done)

    def deleted(self) -> list[Deleted]:
        """What was deleted or anonymised, and can still be restored."""
        from .change.restore import deleted

        files = cast("RecordFiles", self)
        return deleted(files.memory, files.scope.name)

    def restore(self, memory_id: str, *, by: str = "user") -> Record:
        """Puts a deleted memory back where it was, with its old id."""
        return self._restored(ids=[check_memory_id(memory_id)], by=by)[0]

    def restore_batch(self, batch: str, *, by: str = "user") -> list[Record]:
        """Puts back all that was deleted, or anonymised, in one go."""
        return self._restored(batch=batch, by=by)

    def references(self, memory_id: str) -> list[Reference]:
        """What a memory refers to, or is related to by a relationship, and what has become of each: `here`, `deleted`, `purged`,
        `evicted` by compaction, or `unknown`."""
        from .change.references import references

        return references(cast("RecordFiles", self), check_memory_id(memory_id))

    def _restored(self, ids: Sequence[str] | None = None, batch: str | None = None, *, by: str) -> list[Record]:
        from .change.restore import restore

        files = cast("RecordFiles", self)
        return _used(files, restore(files.memory, files.scope.name, ids, batch=batch, by=by))


class MemoryDeletion:
    """The same by the name of a session, wherever that is: also in the archive."""

    def delete(
        self, session: str, id: str | Sequence[str] | None = None, *, reason: str, topic: str | None = None,
        agent: str | None = None, since: When | None = None, until: When | None = None, types: Sequence[str] = (),
        tags: Sequence[str] = (), text: str | None = None, deleted_by: str = "user", dry_run: bool = False,
    ) -> Outcome:  # fmt: skip
        """Takes memories out of a session in its place or in the archive, or of `global`; see `Session.delete`."""
        from .change.restore import delete

        selection = _selection(id, topic, agent, since, until, types, tags, text)
        return delete(cast("Memory", self), session, selection, reason=reason, by=deleted_by, dry_run=dry_run)

    def delete_everywhere(
        self, *, reason: str, topic: str | None = None, agent: str | None = None, since: When | None = None,
        until: When | None = None, types: Sequence[str] = (), tags: Sequence[str] = (), text: str | None = None,
        deleted_by: str = "user", dry_run: bool = False,
    ) -> Outcome:  # fmt: skip
        """The same in `global` and in every session, archived or not, under one batch: what came of it where something fits."""
        from .change.restore import delete_everywhere

        selection = _selection(None, topic, agent, since, until, types, tags, text)
        return delete_everywhere(cast("Memory", self), selection, reason=reason, by=deleted_by, dry_run=dry_run)

    def anonymize(
        self, session: str, id: str | Sequence[str] | None = None, *, names: str | Sequence[str] = (),
        projects: str | Sequence[str] = (), config: Anonymization | None = None, reason: str = "anonymised", by: str = "user",
        dry_run: bool = False, now: bool = False,
    ) -> Anonymized:  # fmt: skip
        """Replaces what names somebody in a session in its place or in the archive, or in `global`; see `Session.anonymize`."""
        from .privacy.anonymise import anonymize

        return anonymize(cast("Memory", self), session, ids=None if id is None else _several(id), names=_several(names),
                         projects=_several(projects), config=config, reason=reason, by=by, dry_run=dry_run, now=now)  # fmt: skip

    def anonymous_export(
        self, sessions: Sequence[str] | None = None, *, names: str | Sequence[str] = (), projects: str | Sequence[str] = (),
        config: Anonymization | None = None,
    ) -> AnonymousExport:  # fmt: skip
        """The `transform` by which an export of these sessions, or of everything, holds placeholders in the place of names."""
        from .privacy.anonymise import AnonymousExport

        return AnonymousExport(cast("Memory", self), sessions, names=_several(names), projects=_several(projects), config=config)

    def deleted(self, session: str) -> list[Deleted]:
        from .change.restore import deleted

        return deleted(cast("Memory", self), session)

    def restore(
        self, session: str, ids: str | Sequence[str] | None = None, *, batch: str | None = None, by: str = "user"
    ) -> list[Record]:
        """Puts deleted memories of a session back, or all that was deleted in one go."""
        from .change.restore import restore

        return restore(cast("Memory", self), session, ids, batch=batch, by=by)

    def restore_batch(self, batch: str, *, by: str = "user") -> Outcome:
        """Restore a batch in every session that it is of."""
        from .change.restore import restore_batch

        return restore_batch(cast("Memory", self), batch, by=by)

    def all_about(self, text: str, session: str | None = None) -> Iterator[Occurrence]:
        """Every place below the root where a text stands, in any case of its letters: in memories wherever they are kept, archived,
        taken out or deleted ones too, and in every other file. Of one session, or of everything."""
        from .privacy.find import all_about

        return all_about(cast("Memory", self), text, session)


def _selection(
    id: str | Sequence[str] | None, topic: str | None, agent: str | None, since: When | None, until: When | None,
    types: Sequence[str], tags: Sequence[str], text: str | None,
) -> Selection:  # fmt: skip
    from .change.select import Selection

    return Selection(None if id is None else _several(id), topic, agent, since, until, _several(types), _several(tags), text)


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    """One text is not the list of its letters."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else (given,)


def _used(files: RecordFiles, done: _Done) -> _Done:
    """Somebody was here, so a session that was resting is in use again."""
    files.quota_bytes()  # looks at the metadata
    files._written()
    return done
