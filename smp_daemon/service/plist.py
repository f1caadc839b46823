"""The launchd property list of a service: an agent of a user, or a daemon of the system."""

from __future__ import annotations

import plistlib
from typing import Any

from .describe import Service

LABEL = "session-memory-persistence"
NAME = f"{LABEL}.plist"


def render(service: Service, log: str) -> str:
    return plistlib.dumps(_properties(service, log), sort_keys=False).decode()


def _properties(service: Service, log: str) -> dict[str, Any]:
    return {
        "Label": LABEL,
        **({} if service.user is None else {"UserName": service.user}),
        "ProgramArguments": list(service.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # after a failure, and not after a stop that somebody asked for
        "ThrottleInterval": 10,
        "ExitTimeOut": 15,
        "ProcessType": "Background",
        "Umask": 0o077,
        "SoftResourceLimits": {"Core": 0, "NumberOfFiles": 4096},
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
