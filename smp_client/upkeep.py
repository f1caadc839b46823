"""Looking after sessions, by hand: what the daemon does by the clock, as methods of a session and of the memory.

Each is in `passes/` or `change/`, imported late: a program that only writes and reads needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .change.move import Away
    from .memory import Memory
    from .model.outcome import Outcome
    from .passes.check import Complaint
    from .passes.compaction import Evicted
    from .session import Session


class SessionUpkeep:
    """What can be done to a session as a whole, while it stays where it is."""

    def activate(self, reason: str = "activated by hand") -> None:
        """Says that the session is in use."""
        from .passes.lifecycle import activate

        activate(cast("Session", self), reason)

    def deactivate(self, reason: str = "deactivated by hand") -> None:
        """Says that nobody uses the session for now; the next use makes it active again."""
        from .passes.lifecycle import deactivate

        deactivate(cast("Session", self), reason)

    def decay(self, *, dry_run: bool = False) -> Outcome:
        """Writes the priorities as of now, and how often each memory was read, into the files."""
        from .passes.decay import decay

        return decay(cast("Session", self), dry_run=dry_run)

    def compact(self, *, reduction_pct: float | None = None, dry_run: bool = False) -> Outcome:
        """Makes the session smaller; what is taken out can be brought back."""
        from .passes.compaction import compact

        return compact(cast("Session", self), reduction_pct=reduction_pct, dry_run=dry_run)

    def estimate_compaction(self) -> int:
        """How many bytes compaction could free at most."""
        from .passes.compaction import estimate

        return estimate(cast("Session", self))

    def evicted(self, *, texts: bool = False) -> list[Evicted]:
        """What compaction has taken out; if asked for with the beginning of what each says."""
        from .passes.compaction import evicted

        return evicted(cast("Session", self), texts=texts)

    def bring_back(self, ids: Sequence[str] | None = None, *, dry_run: bool = False) -> Outcome:
        """Puts what compaction has taken out, or these memories of it, back into their places."""
        from .passes.compaction import bring_back

        return bring_back(cast("Session", self), ids, dry_run=dry_run)

    def validate(self) -> list[Complaint]:
        """What is wrong with the session's files and their copies."""
        from .passes.check import validate

        return validate(cast("Session", self))

    def repair(self, *, dry_run: bool = False) -> Outcome:
        """Puts right what can be put right without guessing."""
        from .passes.check import repair

        return repair(cast("Session", self), dry_run=dry_run)


class MemoryUpkeep:
    """What moves whole sessions, or is done to all of them."""

    def archive_session(self, session_id: str, reason: str = "archived by hand", *, dry_run: bool = False) -> Outcome:
        """Puts a session into the archive; its summary is still found."""
        from .change.move import archive

        return archive(cast("Memory", self), session_id, reason, dry_run=dry_run)

    def restore_session(self, session_id: str) -> Session:
        """Brings a session back from the archive."""
        from .change.move import unarchive

        unarchive(cast("Memory", self), session_id)
        return cast("Memory", self)._session(session_id)

    def archived_sessions(self) -> list[Away]:
        from .change.move import archived

        return archived(cast("Memory", self))

    def delete_session(self, session_id: str, *, reason: str, deleted_by: str = "user", dry_run: bool = False) -> Outcome:
        """Takes a session out, whole, from its place or from the archive; until its deadline it can be restored."""
        from .change.move import delete_session

        return delete_session(cast("Memory", self), session_id, reason, deleted_by, dry_run=dry_run)

    def undelete_session(self, session_id: str, reason: str = "restored by hand", *, by: str = "user") -> None:
        """Puts a deleted session back where it was."""
        from .change.move import undelete_session

        undelete_session(cast("Memory", self), session_id, reason, by=by)

    def deleted_sessions(self) -> list[Away]:
        """The sessions that can be restored, and until when."""
        from .change.move import deleted_sessions

        return deleted_sessions(cast("Memory", self))

    def age_sessions(self, *, dry_run: bool = False) -> Outcome:
        """Says of each session whether it is active, idle or decaying, and archives those that nobody has used for long."""
        from .passes.lifecycle import lifecycle

        return lifecycle(cast("Memory", self), dry_run=dry_run)

    def purge(self, *, force: bool = False, by: str = "user", dry_run: bool = False) -> Outcome:
        """Destroys what was deleted and is past its deadline. Nothing but this and `purge_now` destroys anything."""
        from .passes.purge import purge

        return purge(cast("Memory", self), force=force, by=by, dry_run=dry_run)

    def purge_now(
        self, session: str | None, ids: Sequence[str] | None = None, *, batch: str | None = None, by: str = "user",
        dry_run: bool = False,
    ) -> Outcome:  # fmt: skip
        """Erases memories of a session or of `global`, all that was deleted under a batch, or with neither the whole session, at
        once. What is not deleted yet is deleted first, unless something of the id is deleted already: then only that goes. Nothing
        brings it back."""
        from .passes.purge import purge_now

        return purge_now(cast("Memory", self), session, [ids] if isinstance(ids, str) else ids, batch=batch, by=by, dry_run=dry_run)
