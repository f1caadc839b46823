"""Polling, for trees that cannot be watched."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from .notices import Outbox

POLLING = "polling"
COOKIE_EVERY_S = 0.1
# The system does not announce the changes that other machines make on these file systems.
REMOTE = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "ceph", "afs", "glusterfs",
    "lustre",
})  # fmt: skip


class Polling:
    """Report Lost at regular times, and at once when a cookie appears."""

    mode = POLLING

    def __init__(self, outbox: Outbox, every_s: float) -> None:
        self._outbox = outbox
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="smp-polling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def trouble(self) -> str | None:
        return None if self._thread.is_alive() else "the polling thread has died"

    def _run(self) -> None:
        due, known = time.monotonic() + self._every_s, set[str]()
        while not self._stopping.wait(min(COOKIE_EVERY_S, self._every_s)):
            cookies = set(self._outbox.cookies())
            if time.monotonic() >= due or cookies - known:
                self._outbox.lost(POLLING)
                due = time.monotonic() + self._every_s
            known = cookies


def remote_filesystem(root: Path) -> str | None:
    """Return the type of the root's file system, if not all its changes are announced."""
    device = os.stat(root).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == wanted:
            kind = source.split()[0]
            return kind if kind in REMOTE or kind.startswith("fuse.") else None
    return None
