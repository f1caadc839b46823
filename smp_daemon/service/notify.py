"""Telling systemd how it goes (sd_notify): a datagram to the socket that it named.

Nothing here raises: a daemon that cannot reach its manager does its work all the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

PATIENCE_S = 2.0


def ready(status: str = "") -> bool:
    return _say("READY=1", status)


def reloading(monotonic_us: int) -> bool:
    """`ready` ends it; the time lets systemd tell this reload from an earlier one."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={monotonic_us}")


def stopping(status: str = "") -> bool:
    return _say("STOPPING=1", status)


def status(text: str) -> bool:
    return notify(_status(text))


def feed_watchdog() -> bool:
    return notify("WATCHDOG=1")


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd wants to be fed at least; None where it does not, or where it means another process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        interval_us = int(environment.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return interval_us / 1_000_000 if interval_us > 0 else None


def notify(*assignments: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the message was handed over; False also where nobody asked for any."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A manager that is busy is waited for, because a lost READY would end us; one that never reads must not hold us up.
            sender.settimeout(PATIENCE_S)
            sender.sendto("\n".join(assignments).encode(errors="replace"), address)
    except (OSError, ValueError):
        return False
    return True


def _say(assignment: str, text: str) -> bool:
    return notify(assignment, _status(text)) if text else notify(assignment)


def _status(text: str) -> str:
    # Every line is an assignment of its own, so one that came in with the text could say anything.
    return "STATUS=" + " ".join(text.split())
