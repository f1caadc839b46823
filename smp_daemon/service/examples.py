"""The files in `systemd/` and `launchd/`, as an install writes them; `python -m smp_daemon.service.examples` makes them anew."""

from __future__ import annotations

from pathlib import Path

from .describe import Service
from .install import Place, render

_PROGRAM = "/opt/smp/bin/python3"
_ROOT = "/srv/project/.bmad/sessions"
_CONFIG = "/etc/smp/smp.yaml"
_MAC = "/Users/you"


def examples() -> dict[str, str]:
    """Each file's name from the top of the repository, and its content."""
    own = Service(_PROGRAM, (_ROOT,))
    systems = Service(_PROGRAM, (_ROOT,), config=_CONFIG, user="smp")
    mac = Service(f"{_MAC}/smp/.venv/bin/python3", (f"{_MAC}/project/.bmad/sessions",))
    places = {
        "systemd/user/smp.service": (own, "systemd", None),
        "systemd/system/smp.service": (systems, "systemd", None),
        "launchd/session-memory-persistence.plist": (mac, "launchd", f"{_MAC}/Library/Logs/smp.log"),
    }
    return {
        name: render(service, Place(Path(name), manager, service.user is not None, log))
        for name, (service, manager, log) in places.items()
    }


def write(top: Path) -> None:
    for name, content in examples().items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(content)


if __name__ == "__main__":
    write(Path.cwd())
