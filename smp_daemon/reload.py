"""Asking a running daemon to read its settings again, and waiting for its answer."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from smp_client import NotInTime, SMPError
from smp_client.disk.locks import holder_pid
from smp_client.disk.place import Place
from smp_client.index.status import daemon_report
from smp_client.model.layout import LEAD, LEAD_SCOPE

_PAUSE_S = 0.05


def reload(place: Place, timeout_s: float) -> dict[str, Any]:
    """Send SIGHUP to the daemon of a root. Return what its status then says of the settings."""
    place.require()
    # The status file may have come with the tree; the kernel knows who holds the lock.
    pid = holder_pid(place.tree, LEAD_SCOPE, LEAD)
    if pid is None:
        advice = "It reads the settings when it starts: smp run."
        raise SMPError(f"No daemon is running for {place.root}.", advice=advice)
    before = settings_in_effect(place)
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        raise SMPError(f"The daemon (pid {pid}) cannot be told: {error}.") from error
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        now = settings_in_effect(place)
        if now and now.get("loaded_at") != before.get("loaded_at"):
            return now
        time.sleep(_PAUSE_S)
    raise NotInTime(f"The daemon of {place.root} did not say in time that it has reloaded.")


def settings_in_effect(place: Place) -> dict[str, Any]:
    """Return what the daemon's status says of its settings; nothing where it says nothing."""
    said = daemon_report(place).get("settings")
    return said if isinstance(said, dict) else {}
