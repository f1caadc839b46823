"""The manual page of `smp`, made from the help of its commands.

`python -m smp_daemon.cli.manual > docs/smp.1` writes the page anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from . import GROUPS, smp

_HEAD = r""".TH SMP 1 "" "SMP" "Session Memory Persistence"
.SH NAME
smp \- the memory of AI agents, kept in plain files
.SH SYNOPSIS
.B smp
.I COMMAND
[\fIOPTIONS\fR] [\fIARGUMENTS\fR]
.SH DESCRIPTION
Agents forget everything between sessions. SMP keeps their decisions, findings, preferences and
learnings as YAML and Markdown in a project, and gives them to the next session."""
_TAIL = r""".SH EXIT STATUS
0 done; 1 an error, or something could not be done; 2 a wrong option, value or text;
4 another daemon looks after the tree; 5 bad configuration.
.SH ENVIRONMENT
.B SMP_ROOT
names the sessions tree,
.B SMP_CONFIG
the settings."""


def page() -> str:
    """Return the page in the language of man."""
    lines = [_HEAD]
    for title, commands in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for name in commands:
            command = smp.get_command(click.Context(smp), name)
            assert command is not None
            inner = command.commands if isinstance(command, click.Group) else {"": command}
            for word, leaf in inner.items():
                lines += _entry(f"smp {name} {word}".rstrip(), leaf)
    return "\n".join([*lines, _TAIL, ""])


def _entry(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f".SS {_plain(f'{name} {usage}')}", _plain(command.help or ""))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield from (".TP", rf"\fB{_plain(record[0])}\fR", _plain(record[1]))


def _plain(text: str) -> str:
    """Return a text in which man sees no command. Each example has a line of its own."""
    text, _, examples = text.partition("\b")
    words = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    shown = "".join(f"\n.br\n{_plain(line)}" for line in examples.strip().splitlines())
    return ("\\&" if words.startswith((".", "'")) else "") + words + shown


if __name__ == "__main__":
    click.echo(page(), nl=False)
