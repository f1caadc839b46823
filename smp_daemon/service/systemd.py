"""Messages to systemd (sd_notify): each is a datagram to the socket that systemd named.

Nothing here raises: a daemon that cannot reach its manager works all the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

PATIENCE_S = 2.0


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return how often systemd wants to be fed; None where it does not ask."""
    interval_us = environment.get("WATCHDOG_USEC", "")
    return int(interval_us) / 1_000_000 or None if interval_us.isdecimal() else None


def notify(*assignments: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send such as READY=1. Return whether it was sent; False also where nobody asked for any."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A busy manager is waited for, because a lost READY would end the daemon. A manager
            # that never reads must not hold it up.
            sender.settimeout(PATIENCE_S)
            sender.sendto("\n".join(assignments).encode(errors="replace"), address)
    except (OSError, ValueError):
        return False
    return True
