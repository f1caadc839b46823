"""Where the configuration file is found: cheap to ask, for commands that have no use for the settings where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SYSTEM_FILE = Path("/etc/smp/smp.yaml")


def find(named: str | Path | None = None) -> Path | None:
    """The named file, else that of SMP_CONFIG, whether there or not; else the user's or the system's, if there is one."""
    if given := named or os.environ.get("SMP_CONFIG"):
        return Path(os.path.expanduser(given)).absolute()
    # Told by its name and not by whether it can be read: one that cannot be read is a problem, not an absence.
    return next((file for file in (_user_file(), SYSTEM_FILE) if file is not None and os.path.lexists(file)), None)


def _user_file() -> Path | None:
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        directory = os.path.join(home, "Library", "Application Support")
    else:
        directory = os.environ.get("XDG_CONFIG_HOME", "")
        # The standard says that a relative one is to be ignored.
        directory = directory if os.path.isabs(directory) else os.path.join(home, ".config")
    return Path(directory, "smp", "smp.yaml") if os.path.isabs(directory) else None
