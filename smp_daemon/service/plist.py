"""The launchd property list of a service: an agent of a user, or a daemon of the system."""

from __future__ import annotations

import plistlib

from .description import Service

LABEL = "session-memory-persistence"
NAME = f"{LABEL}.plist"


def render(service: Service, log: str) -> str:
    properties = {
        "Label": LABEL,
        **({} if service.user is None else {"UserName": service.user}),
        "ProgramArguments": list(service.command),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},  # not after a stop that somebody asked for
        "ThrottleInterval": 10,
        "ExitTimeOut": 15,
        "ProcessType": "Background",
        "Umask": 0o077,
        "SoftResourceLimits": {"Core": 0, "NumberOfFiles": 4096},
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(properties, sort_keys=False).decode()
