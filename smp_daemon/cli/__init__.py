"""The `smp` command: the only place that prints and chooses exit codes.

Each group of commands is a module of its own and is imported when it is asked for, and what a command needs is imported inside it:
`smp --help` loads nothing but click.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

EXIT_ERROR = 1
# By the code of the error, so that none of the classes need be imported to know it.
# MEM_E004 and MEM_E008 say that something cannot be asked or written as it was given, which is a wrong call.
EXIT_BY_CODE = {"MEM_E004": 2, "MEM_E008": 2, "MEM_E015": 4, "MEM_E016": 5}

# The commands in the groups of `smp --help`: the module of each, in which it has its own name, and what it is for.
GROUPS = {
    "Everyday": {
        "context": ("read", "What an agent should know before it goes on, as Markdown for its prompt."),
        "add": ("write", "Write a memory into SESSION and print its id."),
        "search": ("read", "Find the memories that match a text best."),
        "show": ("show", "Show a session in short, or memories of it whole."),
        "resolve": ("change", "Close findings of SESSION and say what was done about them."),
        "update": ("change", "Change the text or other fields of memories of SESSION."),
        "supersede": ("change", "Say that OLD no longer holds, because NEW of SESSION does."),
        "relate": ("change", "Say how NEW of SESSION hangs together with OLD."),
        "pin": ("change", "Never let memories of SESSION decay or be compacted away."),
        "unpin": ("change", "Let pinned memories of SESSION decay again."),
        "timeline": ("read", "What happened in SESSION, or everywhere, in order."),
        "topics": ("read", "What SESSION, or everything, is about."),
        "mcp": ("mcp", "Let agents ask and record over the Model Context Protocol."),
        "demo": ("demo", "Make a small tree of a made-up project and show a few commands on it."),
    },
    "Sessions": {
        "new": ("write", "Make a session and print its id."),
        "sessions": ("sessions", "List the sessions, the one that was used last first."),
        "archive": ("put_away", "Put SESSION into the archive, or all that are due."),
        "unarchive": ("put_away", "Bring SESSION back from the archive."),
        "compact": ("upkeep", "Make SESSION smaller."),
    },
    "Privacy": {
        "delete": ("deletion", "Delete SESSION, or memories of it."),
        "restore": ("deletion", "Restore the deleted SESSION, or deleted memories of it."),
        "purge": ("erasing", "Destroy what was deleted and is past its deadline."),
        "anonymize": ("anonymity", "Replace names in SESSION, or in memories of it, by placeholders."),
    },
    "Move": {
        "export": ("exchange", "Write sessions, or everything, into one file that can be imported again."),
        "import": ("exchange", "Take in an export, or memories in other layouts and conversation logs."),
    },
    "Daemon": {
        "init": ("health", "Make a sessions tree."),
        "run": ("run", "Look after sessions trees until stopped."),
        "status": ("health", "Whether the daemon is well."),
        "check": ("health", "Read every file and say what is wrong with it."),
        "service": ("service", "Have systemd or launchd run the daemon."),
        "config": ("config", "Show, check and explain the settings."),
    },
    "Rarely needed": {
        "activate": ("put_away", "Say that SESSION is in use."),
        "deactivate": ("put_away", "Say that nobody uses SESSION for now."),
        "decay": ("upkeep", "Write the priorities as of now into the files of SESSION, or everywhere."),
        "sync": ("health", "Wait until all that is on disk now is in the index."),
        "reindex": ("health", "Build the index anew from the files."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
_OTHER_NAMES = {"anonymise": "anonymize", "ls": "sessions", "get": "show", "rm": "delete"}


@contextmanager
def _quoting_no_secret() -> Iterator[None]:
    """What click says of an argument quotes it, and whoever mistyped may have given a secret there."""
    try:
        yield
    except click.ClickException as error:
        said = error.format_message()
        if all(len(word) < _SECRET_CHARACTERS for word in said.split()):
            raise
        from smp_client.privacy.redact import harmless

        if (shown := harmless(said)) == said:
            raise
        raise (click.UsageError(shown, error.ctx) if isinstance(error, click.UsageError) else click.ClickException(shown)) from None


_SECRET_CHARACTERS = 12  # with its quotes; a shorter word is not worth loading what knows secrets


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _OTHER_NAMES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[cmd_name][0]}", __name__)
        name = cmd_name.replace("-", "_")
        command = getattr(module, f"{name}_" if name == "import" else name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in (*COMMANDS, *_OTHER_NAMES) and not ctx.resilient_parsing:
            import difflib

            if close := difflib.get_close_matches(args[0], COMMANDS, cutoff=0.7):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`smp help COMMAND` is `smp COMMAND --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _quoting_no_secret():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _quoting_no_secret():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                # One width for all groups, so that the texts stand below each other.
                formatter.write_dl([(f"{name:<{max(map(len, COMMANDS))}}", says) for name, (_, says) in commands.items()])


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from smp_client import __version__

        click.echo(f"smp, version {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version.")
def smp() -> None:
    """The memory of AI agents, kept in plain files."""


def main() -> None:
    with ExitStack() as streams:
        _fill_standard_streams(streams)
        output = _own_output()
        try:
            smp()
        except Exception as error:
            from smp_client import SMPError

            if not isinstance(error, (SMPError, OSError)):
                raise
            with suppress(OSError):  # where stderr is full too there is nobody left to tell
                click.echo(f"smp: {_told(error, output)}", err=True)
            sys.exit(EXIT_BY_CODE.get(getattr(error, "code", ""), EXIT_ERROR))


class _Output(io.FileIO):
    """Standard output that remembers why it could not be written. What comes then is dropped: Python would try to write what is
    left once more when it ends, and show a traceback."""

    failed: OSError | None = None

    def write(self, content: Any, /) -> int:
        if self.failed is not None:
            return len(content)
        try:
            return super().write(content)
        except OSError as error:
            self.failed = error
            raise


def _own_output() -> _Output | None:
    """Put a stream of our own in the place of stdout; None where there is none with a descriptor.

    It has a buffer, which writes all or fails. Without one, as with PYTHONUNBUFFERED, Python takes a part for the whole.
    """
    try:
        output = _Output(sys.stdout.fileno(), "w", closefd=False)
    except (AttributeError, OSError, ValueError):
        return None
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(output), encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    return output


def _told(error: Exception, output: _Output | None) -> str:
    from smp_client.privacy.redact import harmless

    if output is None or output.failed is None:
        return harmless(str(error))
    done = "What the command was to change may be done: look before you repeat it."
    return f"the output cannot be written: {output.failed.strerror}. {done}"


def _fill_standard_streams(streams: ExitStack) -> None:
    """Where stderr is closed, the next file to be opened would get its number, and what is meant for stderr would get into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nothing = Path(os.devnull).open("r+b", buffering=0)  # noqa: SIM115  # open for as long as the command runs
            streams.callback(nothing.close)
