"""The files in `systemd/` and `launchd/`. `python tests/daemon/service_examples.py` writes them."""

from __future__ import annotations

from pathlib import Path

from smp_daemon.service.description import Service
from smp_daemon.service.service_file import Place, render

_PROGRAM, _ROOTS = "/opt/smp/bin/python3", ("/srv/project/.bmad/sessions",)
_MAC = "/Users/you"
_MAC_SERVICE = Service(f"{_MAC}/smp/.venv/bin/python3", (f"{_MAC}/project/.bmad/sessions",))
_SYSTEM_SERVICE = Service(_PROGRAM, _ROOTS, config="/etc/smp/smp.yaml", user="smp")


def examples() -> dict[str, str]:
    """Return the content of each file, by its name from the top of the repository."""
    user, system = Path("systemd/user/smp.service"), Path("systemd/system/smp.service")
    agent = Path("launchd/session-memory-persistence.plist")
    return {
        str(user): render(Service(_PROGRAM, _ROOTS), Place(user, "systemd", False)),
        str(system): render(_SYSTEM_SERVICE, Place(system, "systemd", True)),
        str(agent): render(
            _MAC_SERVICE, Place(agent, "launchd", False, f"{_MAC}/Library/Logs/smp.log")
        ),
    }


if __name__ == "__main__":
    for name, content in examples().items():
        Path(name).write_text(content)
