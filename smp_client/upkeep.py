"""Looking after sessions, by hand: what the daemon does by the clock, as methods of a session and of the memory.

Each is a pass of `maintain/`, which is imported when it is asked for: who only writes and reads does not pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .check import Complaint
    from .maintain.actions import Outcome
    from .maintain.archive import Archived
    from .maintain.compacting import CompactionResult
    from .maintain.evictions import Evicted
    from .maintain.removal import DeletedSession
    from .memory import Memory
    from .session import Session


class SessionUpkeep:
    """What can be done to a session as a whole, while it stays where it is."""

    def activate(self, reason: str = "activated by hand") -> None:
        """Says that the session is in use."""
        from .maintain.lifecycle import activate

        activate(cast("Session", self), reason)

    def deactivate(self, reason: str = "deactivated by hand") -> None:
        """Says that nobody uses the session for now; the next use makes it active again."""
        from .maintain.lifecycle import deactivate

        deactivate(cast("Session", self), reason)

    def decay(self, *, dry_run: bool = False) -> Outcome:
        """Writes the priorities as of now, and how often each memory was read, into the files."""
        from .maintain.decay import decay

        return decay(cast("Session", self), dry_run=dry_run)

    def compact(self, *, reduction_pct: float | None = None, dry_run: bool = False) -> CompactionResult:
        """Makes the session smaller; what is taken out can be brought back."""
        from .maintain.compacting import compact

        return compact(cast("Session", self), reduction_pct=reduction_pct, dry_run=dry_run)

    def estimate_compaction(self) -> int:
        """How many bytes compaction could free at most."""
        from .maintain.compacting import estimate

        return estimate(cast("Session", self))

    def evicted(self, *, texts: bool = False) -> list[Evicted]:
        """What compaction has taken out; if asked for with the beginning of what each says."""
        from .maintain.evictions import evicted

        return evicted(cast("Session", self), texts=texts)

    def bring_back(self, ids: Sequence[str] | None = None) -> Outcome:
        """Puts what compaction has taken out, or these memories of it, back into their places."""
        from .maintain.evictions import bring_back

        return bring_back(cast("Session", self), ids)

    def validate(self) -> list[Complaint]:
        """What is wrong with the session's files and their copies."""
        from .maintain.repair import validate

        return validate(cast("Session", self))

    def repair(self, *, dry_run: bool = False) -> Outcome:
        """Puts right what can be put right without guessing."""
        from .maintain.repair import repair

        return repair(cast("Session", self), dry_run=dry_run)


class MemoryUpkeep:
    """What moves whole sessions, or is done to all of them."""

    def archive_session(self, session_id: str, reason: str = "archived by hand", *, dry_run: bool = False) -> Outcome:
        """Puts a session into the archive; its summary is still found."""
        from .maintain.archive import archive

        return archive(cast("Memory", self), session_id, reason, dry_run=dry_run)

    def restore_session(self, session_id: str) -> Session:
        """Brings a session back from the archive."""
        from .maintain.archive import unarchive

        unarchive(cast("Memory", self), session_id)
        return cast("Memory", self)._session(session_id)

    def archived_sessions(self) -> list[Archived]:
        from .maintain.archive import archived

        return archived(cast("Memory", self))

    def delete_session(self, session_id: str, *, reason: str, deleted_by: str = "user", dry_run: bool = False) -> Outcome:
        """Takes a session out, whole, from its place or from the archive; until its deadline it can be restored."""
        from .maintain.removal import delete_session

        return delete_session(cast("Memory", self), session_id, reason, deleted_by, dry_run=dry_run)

    def undelete_session(self, session_id: str, reason: str = "restored by hand", *, by: str = "user") -> None:
        """Puts a deleted session back where it was."""
        from .maintain.removal import undelete_session

        undelete_session(cast("Memory", self), session_id, reason, by=by)

    def deleted_sessions(self) -> list[DeletedSession]:
        """The sessions that can be restored, and until when."""
        from .maintain.removal import deleted_sessions

        return deleted_sessions(cast("Memory", self))

    def age_sessions(self, *, dry_run: bool = False) -> Outcome:
        """Says of each session whether it is active, idle or decaying, and archives those that nobody has used for long."""
        from .maintain.lifecycle import lifecycle

        return lifecycle(cast("Memory", self), dry_run=dry_run)

    def purge(self, *, force: bool = False, by: str = "user", dry_run: bool = False) -> Outcome:
        """Destroys what was deleted and is past its deadline. Nothing but this and `purge_now` destroys anything."""
        from .maintain.purge import purge

        return purge(cast("Memory", self), force=force, by=by, dry_run=dry_run)

    def purge_now(
        self, session: str | None, ids: Sequence[str] | None = None, *, batch: str | None = None, by: str = "user",
        dry_run: bool = False,
    ) -> Outcome:  # fmt: skip
        """Erases memories of a session or of `global`, all that was deleted under a batch, or with neither the whole session, at
        once. What is not deleted yet is deleted first, unless something of the id is deleted already: then only that goes. Nothing
        brings it back."""
        from .maintain.purge import purge_now

        return purge_now(cast("Memory", self), session, [ids] if isinstance(ids, str) else ids, batch=batch, by=by, dry_run=dry_run)
