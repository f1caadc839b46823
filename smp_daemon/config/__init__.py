"""The configuration: every setting is described once, and read from one file.

To find the file is cheap, because most commands find none and import nothing else from here.
"""

from __future__ import annotations

import os
from pathlib import Path

SYSTEM_FILE = Path("/etc/smp/smp.yaml")


def find(named: str | Path | None = None) -> Path | None:
    """Return the named file, else the file of SMP_CONFIG, else the user's, else the system's.

    A file that somebody names is returned also where it does not exist.
    """
    if given := named or os.environ.get("SMP_CONFIG"):
        return Path(os.path.expanduser(given)).absolute()
    own = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))
    # A file that cannot be read is a problem, not an absence, so only its name counts here.
    files = (own / "smp/smp.yaml", SYSTEM_FILE)
    return next((file for file in files if os.path.lexists(file)), None)
