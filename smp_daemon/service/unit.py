"""A service as a systemd unit, and as a launchd property list."""

from __future__ import annotations

import plistlib
import re

from .description import Service

UNIT_NAME = "smp.service"
LABEL = "session-memory-persistence"
# The exit codes of `smp run` where another daemon has the lead, and where the settings are bad.
FOR_A_PERSON = (4, 5)

_PLAIN = re.compile(r"[A-Za-z0-9_/.,:=@+-]+")

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


def render_unit(service: Service) -> str:
    is_system = service.user is not None
    writable = " ".join(quoted(f"-{path}") for path in service.writes)
    after = "After=local-fs.target remote-fs.target\n" if is_system else ""
    account = f"User={service.user}\n" if is_system else ""
    home = "read-only" if service.needs("/home", "/root", "/run/user") else "yes"
    protect_home = f"ProtectHome={home}\n" if is_system else ""
    # With a private /tmp, files that the service needs in the real one would not be there.
    private_tmp = "no" if service.needs("/tmp", "/var/tmp") else "yes"  # noqa: S108
    program, *arguments = service.command
    command = " ".join([quoted(program), *map(argument, arguments)])
    return f"""\
[Unit]
Description=SMP, the memory of AI agents
{after}# Five failures in five minutes are no bad luck: give up, and let `systemctl status` say so.
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
{account}ExecStart={command}
# READY=1 comes when the tree is led and scanned, WATCHDOG=1 while the daemon does its work.
Type=notify
NotifyAccess=main
WatchdogSec=60
# The shell's own kill, because not every system has the program.
ExecReload=/bin/sh -c "kill -HUP ${{MAINPID}}"
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
