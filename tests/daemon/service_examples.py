"""The files in `systemd/` and `launchd/`. `python tests/daemon/service_examples.py` writes them."""

from __future__ import annotations

from pathlib import Path

from smp_daemon.service.unit import Service, place, render

_PROGRAM, _ROOTS = "/opt/smp/bin/python3", ("/srv/project/.bmad/sessions",)


def examples() -> dict[str, str]:
    """Return the content of each file, by its name from the top of the repository."""
    system = Service(_PROGRAM, _ROOTS, config="/etc/smp/smp.yaml", user="smp")
    mac = Service("/Users/you/smp/.venv/bin/python3", ("/Users/you/project/.bmad/sessions",))
    unit, home = place("linux", False, Path("/home/you"), {}), Path("/Users/you")
    return {
        "systemd/user/smp.service": render(Service(_PROGRAM, _ROOTS), unit),
        "systemd/system/smp.service": render(system, unit),
        "launchd/session-memory-persistence.plist": render(mac, place("darwin", False, home, {})),
    }


if __name__ == "__main__":
    for name, content in examples().items():
        Path(name).write_text(content)
