"""The configuration: every setting is described once, and read from one file.

To find the file is cheap, because most commands find none and import nothing else from here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SYSTEM_FILE = Path("/etc/smp/smp.yaml")


def find(named: str | Path | None = None) -> Path | None:
    """Return the named file, else the file of SMP_CONFIG, else the user's, else the system's.

    A file that somebody names is returned also where it does not exist.
    """
    if given := named or os.environ.get("SMP_CONFIG"):
        return Path(os.path.expanduser(given)).absolute()
    # A file that cannot be read is a problem, not an absence, so only its name counts here.
    files = (_user_file(), SYSTEM_FILE)
    return next((file for file in files if file is not None and os.path.lexists(file)), None)


def _user_file() -> Path | None:
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        directory = os.path.join(home, "Library", "Application Support")
    else:
        directory = os.environ.get("XDG_CONFIG_HOME", "")
        # The standard says that a relative one is ignored.
        directory = directory if os.path.isabs(directory) else os.path.join(home, ".config")
    return Path(directory, "smp", "smp.yaml") if os.path.isabs(directory) else None
