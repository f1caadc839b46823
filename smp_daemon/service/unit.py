"""The service file that runs `smp run`: a unit of systemd, or a property list of launchd.

The manager need not be running: commands that only it can follow are returned for a person.
"""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from smp_client import Memory
from smp_client.disk.tree import Tree
from smp_client.model.errors import Conflict, Invalid, StorageFailed, UnsafePath

LABEL, UNIT_NAME = "session-memory-persistence", "smp.service"
SYSTEM_MODE = 0o644  # everybody may see which services the system runs; a user's own stays 0600
# The exit codes of `smp run` where another daemon has the lead, and where the settings are bad.
FOR_A_PERSON = (4, 5)

_UNSAFE_IN_PROGRAM = frozenset("\"'\\$")
_PLAIN = re.compile(r"[A-Za-z0-9_/.,:=@+-]+")

_TEMPORARY = ("/tmp/", "/var/tmp/")  # noqa: S108
# Only the system's manager can take these away. The lease that tells whether somebody has a file
# open needs no capability: the files are its own account's.
_SYSTEM_ONLY = """\
PrivateDevices=yes
DevicePolicy=closed
PrivateUsers=yes
PrivateIPC=yes
PrivateMounts=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectProc=invisible
ProcSubset=pid
CapabilityBoundingSet=
AmbientCapabilities=
IPAddressDeny=any
KeyringMode=private
RemoveIPC=yes
"""


@dataclass(frozen=True)
class Service:
    """All paths are absolute. `user` is the account of a system service, None in a user's own."""

    python: str
    roots: tuple[str, ...]
    config: str | None = None
    user: str | None = None
    log: str | None = None  # the directory of the log file, where the settings name one

    def __post_init__(self) -> None:
        """Refuse paths that a service file cannot hold."""
        odd = "is not absolute, or has characters that a service file cannot hold"
        paths = (self.python, *self.writes, *filter(None, [self.config]))
        bad = [path for path in paths if path[0] != "/" or not path.isprintable()]
        bad += [self.python] if _UNSAFE_IN_PROGRAM & set(self.python) else []
        problems = [f"{path!r} {odd}" for path in bad]
        if problems or not self.roots:
            raise Invalid(problems or ["a service needs a root to look after"])

    @property
    def command(self) -> tuple[str, ...]:
        config = () if self.config is None else ("--config", self.config)
        roots = (word for root in self.roots for word in ("--root", root))
        # With -P a yaml.py in the working directory, such as a home, is not taken for the library.
        return (self.python, "-P", "-m", "smp_daemon", "run", *config, *roots)

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self.roots, self.log)))


def describe(
    roots: Sequence[str | Path], config: str | Path | None = None, user: str | None = None,
    log_file: str | Path | None = None,
) -> Service:  # fmt: skip
    """Return the service that runs the interpreter in use now."""
    return Service(
        python=sys.executable,
        roots=tuple(dict.fromkeys(map(_absolute, roots))),
        config=None if config is None else _absolute(config),
        user=user,
        log=None if log_file is None else os.path.dirname(_absolute(log_file)),
    )


def _absolute(path: str | Path) -> str:
    return os.path.abspath(os.path.expanduser(path))


@dataclass(frozen=True)
class Place:
    """Where the manager looks for the file: systemd, or launchd where there is a `log`."""

    path: Path
    system: bool = False
    log: str = ""  # takes the output, because launchd has no journal


def place(platform: str, system: bool, home: Path, environment: Mapping[str, str]) -> Place:
    if platform == "darwin":
        if system:
            raise Invalid(["launchd runs SMP for one user: --system is for systemd"])
        path = home / f"Library/LaunchAgents/{LABEL}.plist"
        return Place(path, log=str(home / "Library/Logs/smp.log"))
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "systemd/user"
    return Place((Path("/etc/systemd/system") if system else own) / UNIT_NAME, system)


# The file's content.


def render(service: Service, where: Place) -> str:
    return render_plist(service, where.log) if where.log else render_unit(service)


def render_unit(service: Service) -> str:
    is_system = service.user is not None
    writable = " ".join(quoted(f"-{path}") for path in service.writes)
    after = "After=local-fs.target remote-fs.target\n" if is_system else ""
    account = f"User={service.user}\n" if is_system else ""
    protect_home = "ProtectHome=read-only\n" if is_system else ""
    # With a private /tmp, a tree in the real one would not be there.
    real = [os.path.realpath(path) for path in service.writes]
    private_tmp = "no" if any(path.startswith(_TEMPORARY) for path in real) else "yes"
    program, *arguments = service.command
    command = " ".join([quoted(program), *map(argument, arguments)])
    return f"""\
# From `smp service install`, which replaces it only with --force.
[Unit]
Description=SMP, the memory of AI agents
{after}# Five failures in five minutes are no bad luck: give up, and let `systemctl status` say so.
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
{account}ExecStart={command}
# SIGHUP: the daemon reads its settings again. A bad file leaves the old ones in effect.
ExecReload=/bin/kill -HUP $MAINPID
# READY=1 comes when the tree is led and scanned, WATCHDOG=1 while the daemon does its work.
Type=notify
NotifyAccess=main
WatchdogSec=60
Restart=on-failure
RestartSec=2
# Another daemon looks after the root, or the settings are bad: starting again would not help.
RestartPreventExitStatus={" ".join(map(str, FOR_A_PERSON))}
TimeoutStartSec=300
TimeoutStopSec=15
# A watchdog's abort must not leave the memories in a core file.
LimitCORE=0
MemoryHigh=512M
MemoryMax=1G
TasksMax=256
UMask=0077

NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
# The only socket is the one to systemd.
RestrictAddressFamilies=AF_UNIX
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

# All is read-only but these; with "-", a missing one does not keep the service from the others.
# A user's manager holds this only where the kernel lets it make a user namespace.
ProtectSystem=strict
ReadWritePaths={writable}
{protect_home}PrivateTmp={private_tmp}
PrivateNetwork=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
{_SYSTEM_ONLY if is_system else ""}
[Install]
WantedBy={"multi-user" if is_system else "default"}.target
"""


def quoted(word: str) -> str:
    """Return a word of a setting, in which %, quotes and backslashes mean themselves."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def argument(word: str) -> str:
    """Return a word of a command line, in which variables ($) mean themselves too."""
    return quoted(word.replace("$", "$$"))


def render_plist(service: Service, log: str) -> str:
    properties = {
        "Label": LABEL,
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


# The file in its place.


def read(where: Place) -> str | None:
    """Return the installed file, None where there is none. A link, as masking makes, is empty."""
    try:
        return Tree(where.path.parent).read(where.path.name).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnsafePath:
        return ""


def is_ours(content: str) -> bool:
    return "smp_daemon" in content


def install(service: Service, where: Place, *, force: bool = False, dry_run: bool = False) -> bool:
    """Write the file, and make the roots. Return False where the file is there already."""
    content, old = render(service, where), read(where)
    if old == content:
        return False
    if old is not None and not force:
        advice = "Look at it with `smp service show`; --force replaces it."
        raise Conflict(f"{where.path} is there, with other content.", advice=advice)
    if dry_run:
        return True
    # The manager gives the service its roots only if they are there when it starts.
    for root in service.roots:
        if not where.system:
            Memory(root).create()
        elif not Path(root).is_dir():
            advice = "Make it as the account that owns it: smp init"
            raise StorageFailed(f"{root} does not exist.", advice=advice)
    tree, temporary = Tree(where.path.parent), f".{where.path.name}.{uuid.uuid4().hex}"
    tree.create_root(())
    tree.write_new(temporary, content.encode())
    if where.system:
        with tree.opened(temporary) as descriptor:
            os.fchmod(descriptor, SYSTEM_MODE)
    tree.rename(temporary, where.path.name)
    return True


def uninstall(where: Place, *, force: bool = False, dry_run: bool = False) -> bool:
    """Remove the file. Return False where there is none."""
    old = read(where)
    if old is None:
        return False
    if not is_ours(old) and not force:
        advice = "Look at it with `smp service show`; --force removes it."
        raise Conflict(f"{where.path} is not from SMP.", advice=advice)
    if not dry_run:
        Tree(where.path.parent).unlink(where.path.name)
    return True


def after_install(where: Place) -> list[str]:
    """Return the commands with which a person starts the service, also where it runs already."""
    if where.log:
        start = f"launchctl bootstrap gui/{os.getuid()} {shlex.quote(str(where.path))}"
        return [f"{after_uninstall(where)} 2>/dev/null; {start}"]
    control = _control(where)
    start = f"{control} daemon-reload && {control} enable smp && {control} restart smp"
    # Without lingering, a user's services end when the user logs out.
    return [start, *([] if where.system else ["loginctl enable-linger"])]


def after_uninstall(where: Place) -> str:
    """Return the command with which a person stops the service."""
    if where.log:
        return f"launchctl bootout gui/{os.getuid()}/{LABEL}"
    return f"{_control(where)} stop smp && {_control(where)} daemon-reload"


def _control(where: Place) -> str:
    return "sudo systemctl" if where.system else "systemctl --user"
