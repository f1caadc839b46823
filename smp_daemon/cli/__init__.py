"""The `smp` command: the only place that prints and chooses exit codes.

Each group of commands is a module, imported when one of them is asked for. `smp --help` loads
nothing but click.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from typing import Any

import click

EXIT_ERROR = 1
EXIT_UNKNOWN = 3  # of `smp status`, also after a wrong call
# By the code of the error, so that no class need be imported; the first two are wrong calls.
EXIT_BY_CODE = {"MEM_E004": 2, "MEM_E008": 2, "MEM_E015": 4, "MEM_E016": 5}

# The groups of `smp --help`: each command with its module and its first sentence.
GROUPS = {
    "Start": {
        "demo": ("demo", "Make a small tree of a made-up project and show a few commands on it."),
        "new": ("write", "Make a session and print its id."),
        "init": ("upkeep", "Make a sessions tree for the project you are in."),
        "run": ("host", "Look after sessions trees until stopped."),
        "service": ("host", "Have systemd or launchd run the daemon."),
        "mcp": ("host", "Let agents ask and record over the Model Context Protocol."),
    },
    "Write and ask": {
        "context": ("search", "Print what an agent should know, as Markdown for its prompt."),
        "add": ("write", "Write a memory into SESSION and print its id."),
        "search": ("search", "Find the memories that match a text best."),
        "show": ("search", "Show a session in short, or memories of it whole."),
        "resolve": ("write", "Close findings of SESSION and say how they were resolved."),
        "update": ("write", "Change the text or other fields of memories of SESSION."),
        "supersede": ("write", "Say that OLD no longer holds, because NEW does."),
        "relate": ("write", "Say how NEW of SESSION is related to OLD."),
        "pin": ("write", "Never let memories of SESSION decay or be evicted."),
        "unpin": ("write", "Let pinned memories of SESSION decay again."),
        "timeline": ("search", "List memories in the order of time."),
        "topics": ("search", "List the topics of SESSION, or of everything."),
        "stats": ("search", "Count the memories by kind, project, agent and month."),
    },
    "Look after": {
        "sessions": ("upkeep", "List the sessions, the one that was used last first."),
        "status": ("upkeep", "Report whether the daemon is well."),
        "doctor": ("upkeep", "Look for everything that is wrong and say what to do."),
        "archive": ("upkeep", "Put SESSION into the archive, or all that are due."),
        "unarchive": ("upkeep", "Bring SESSION back from the archive."),
        "compact": ("upkeep", "Make SESSION smaller."),
        "check": ("upkeep", "Read every file and name mistakes."),
        "config": ("host", "Show, check and explain the settings."),
    },
    "Privacy": {
        "delete": ("privacy", "Delete SESSION, or memories of it."),
        "restore": ("privacy", "Restore the deleted SESSION, or deleted memories of it."),
        "purge": ("privacy", "Destroy what was deleted and is past its deadline."),
        "anonymize": (
            "privacy",
            "Replace names in SESSION, in its memories, or everywhere, by placeholders.",
        ),
    },
    "Move": {
        "export": ("exchange", "Write sessions, or everything, into one file."),
        "import": (
            "exchange",
            "Take in an export, another tree, other layouts or conversation logs.",
        ),
    },
    "Rarely needed": {
        "activate": ("upkeep", "Mark SESSION as in use."),
        "deactivate": ("upkeep", "Mark SESSION as not in use, until the daemon sees its next use."),
        "decay": ("upkeep", "Write the priorities of now into the files."),
        "sync": ("upkeep", "Wait until everything on disk is in the index."),
        "reindex": ("upkeep", "Rebuild the index from the files, and the files in indexes/."),
        "completion": ("host", "Print the script by which a shell completes smp."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
# Other words for commands, from other tools and other spellings.
ALIASES = {
    "ls": "sessions",
    "list": "sessions",
    "get": "show",
    "rm": "delete",
    "remove": "delete",
    "anonymise": "anonymize",
}
_EPILOG = "ls, get and rm are sessions, show and delete; smp help COMMAND explains a command."


class LazyGroup(click.Group):
    """The group of all commands; each one's module is imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _OWN:
            return _OWN[cmd_name]
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[name][0]}", __name__)
        command = getattr(module, "import_" if name == "import" else name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from smp_client.model.nearest import did_you_mean

            meant = did_you_mean(name, [*COMMANDS, *ALIASES, *_OWN])
            ctx.fail(f"There is no command {name!r}{meant}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        columns = max(map(len, COMMANDS))  # one width for all groups
        for title, commands in GROUPS.items():
            with formatter.section(title):
                rows = [(f"{name:<{columns}}", says) for name, (_, says) in commands.items()]
                formatter.write_dl(rows)


@click.command("help")
@click.argument("name", metavar="[COMMAND]...", nargs=-1)
def _help(name: tuple[str, ...]) -> None:
    """Explain smp, or a command."""
    smp.main([*name, "--help"], prog_name="smp", standalone_mode=False)


@click.command("version")
def _version() -> None:
    """Print the version."""
    smp.main(["--version"], prog_name="smp", standalone_mode=False)


_OWN = {"help": _help, "version": _version}


_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.group(cls=LazyGroup, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(package_name="session-memory-persistence", prog_name="smp")
def smp() -> None:
    """The memory of AI agents, kept in plain files."""


def main() -> None:
    """Run the command; print an error as one sentence, without secrets, and exit with its code."""
    with suppress(AttributeError, OSError, ValueError):
        # With a buffer, which PYTHONUNBUFFERED takes away, no part of a write passes for all.
        how: Any = {"encoding": sys.stdout.encoding, "errors": "backslashreplace"}
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", closefd=False, **how)
    code: object
    try:
        code = smp.main(prog_name="smp", standalone_mode=False)
    except click.Abort:
        click.echo("Aborted!", err=True)
        code = EXIT_ERROR
    except BrokenPipeError:  # nobody reads the rest, as in `smp search | head -1`
        sys.stdout = None
        code = EXIT_ERROR
    except Exception as error:
        code = _report(error)
    sys.exit(code if isinstance(code, int) else 0)


def _said(error: Exception, message: str) -> str:
    """Return an error as a sentence; with `--json`, as an object with its code."""
    if "--json" not in sys.argv:
        return f"smp: {message}"
    known = {
        "code": getattr(error, "code", None),
        "message": message,
        "session": getattr(error, "session_id", None),
        "recoverable": getattr(error, "recoverable", False),
    }
    return json.dumps({"error": known})


def _report(error: Exception) -> int:
    """Print an error as a sentence on stderr and return the exit code."""
    from smp_client import SMPError
    from smp_client.redaction.redact import harmless

    if isinstance(error, click.UsageError):
        if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
            error.show()  # the help
        else:  # a mistyped argument may be a secret
            message = harmless(error.format_message())
            if "--json" in sys.argv:
                click.echo(_said(error, message), err=True)
            else:
                click.UsageError(message, error.ctx).show()
        # Monitoring takes 1 and 2 of the health command for degraded and down.
        is_health = error.ctx is not None and error.ctx.info_name == "status"
        return EXIT_UNKNOWN if is_health else error.exit_code
    if not isinstance(error, (SMPError, OSError, click.ClickException)):
        raise error
    if isinstance(error, OSError):
        sys.stdout = None  # Python would write the rest once more when it ends
    with suppress(OSError):  # where stderr is full too, nobody can be told
        click.echo(_said(error, harmless(str(error))), err=True)
    return EXIT_BY_CODE.get(getattr(error, "code", ""), EXIT_ERROR)
