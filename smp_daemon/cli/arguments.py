"""How commands are declared: arguments and options as lines of text, and their completion.

A command is a function of one `Call`, which has every argument and option as an attribute.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from smp_client.disk.home import find_home
from smp_client.model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, LATEST, is_tree

from . import output as out

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Memory, Session
    from smp_client.model.outcome import Outcome

ADDED = ("turn", "decision", "finding", "preference", "learning", "pattern", "state", "artifact")
TYPES = (*ADDED, "relationship", "summary")
KEPT = (ACTIVE, ARCHIVED, GLOBAL)
ANYWHERE = (ACTIVE, ARCHIVED, DELETED, GLOBAL)
# Options by which memories are selected, each with its name in the library.
CONDITIONS = {"topic": "topic", "agent": "agent", "since": "since", "until": "until",
              "type": "types", "tag": "tags", "text": "text"}  # fmt: skip
SELECTING = " ".join(f"--{name}" for name in CONDITIONS)
# Options that several commands take.
_SHARED = (
    "--root DIRECTORY  The sessions tree; else SMP_ROOT, else that of the project you are in.",
    "--json            Print JSON.",
    "--dry-run         Print the plan with its reasons; change nothing.",
    "--yes             Do not ask. A script is never asked.",
    "--by ACCOUNT      Who does it, for the audit log; else your account.",
    "--config FILE     The settings; else SMP_CONFIG, else your own file, else the system's.",
    "--batch BATCH     All memories that were deleted, or anonymised, together.",
    "--field NAME=VALUE...  A field: impact=high, lines=[1,2], location.line=3; repeat it.",
    "--topic TOPIC     Only about this topic, as smp topics names it.",
    "--agent WHO       Only from this agent or person.",
    '--since WHEN      Only from then on; an ISO time, a date, or words: "last 7 days".',
    "--until WHEN      Only until then, included.",
    f"--type TYPE...    Only of this kind: {', '.join(TYPES)}; repeat it for several.",
    "--tag TAG...      Only with this tag or one below it; repeat it for any of several.",
    "--text TEXT       Only with this text anywhere, in any case.",
)
_OPTION = re.compile(r"(?:(-\w), )?(--[a-z-]+)(?: ([^ :]+?)(\.\.\.|!)?(?::(\S+))?)?(?:  +(.*))?")
_PLAIN = re.compile(r"\w[\w./-]*")  # other ids are not completed: a shell might run their words
_COMPLETIONS = 200


class Command(click.Command):
    """A command whose error names the option that a mistyped one is nearest to, and no other."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from smp_client.model.nearest import nearest

            names = [name for one in self.get_params(ctx) for name in one.opts]
            meant = nearest(error.option_name, names)
            hint = f" Did you mean {meant!r}?" if meant else ""
            raise click.UsageError(error.message + hint, ctx) from None


class Choice(click.Choice[str]):
    """A choice of words, whose error names the word that a mistyped one is nearest to."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        from smp_client.model.nearest import did_you_mean

        meant = did_you_mean(str(value), self.choices)
        return f"{value!r} is not one of {', '.join(self.choices)}{meant}."


class Call(SimpleNamespace):
    """The arguments and options of one call of a command, as attributes."""

    root: str | None = None
    json = dry_run = yes = False
    asked: Memory | None = None  # the memory that was asked
    unmade: Memory | None = None  # the memory that is written to, if it has no tree yet

    def target(self) -> Memory:
        """Return the memory at `--root` for writing. Its first write makes the tree."""
        memory = place_memory(self.root)
        if not is_tree(memory.tree.path):
            self.unmade = memory
        return memory

    def tell_made(self) -> None:
        """Name on stderr the tree that this call has made."""
        if self.unmade is not None and is_tree(self.unmade.tree.path):
            made = f"note: made the sessions tree {self.unmade.root}"
            out.tell(f"{made}; its .gitignore keeps it out of git", err=True)

    def memory(self) -> Memory:
        """Return the memory at `--root`; raise where it does not exist."""
        memory = place_memory(self.root)
        memory.require()
        self.asked = memory
        return memory

    def tell_unread(self) -> None:
        """Name on stderr the sessions that the questions of this call could not read."""
        for session, reason in self.asked.unread.items() if self.asked else ():
            out.tell(f"note: {session} is not read as a whole: {reason}", err=True)

    def scope(self) -> GlobalMemory | Session:
        """Return the memories that hold everywhere (`global`), or the named session."""
        return find_scope(self.memory(), self.session)

    def given(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return those of these options that were given, under their names in the library."""
        values = {to: getattr(self, name) for name, to in names.items()}
        return {name: value for name, value in values.items() if value not in (None, ())}

    def check(self, *wrong: tuple[object, str]) -> None:
        """Raise a usage error with the first sentence whose condition holds."""
        for is_wrong, sentence in wrong:
            if is_wrong:
                raise click.UsageError(sentence)

    @property
    def will_ask(self) -> bool:
        """Return whether a person at a terminal is asked to confirm."""
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        return has_terminal and not self.dry_run and not self.yes

    def ask(self, do: Callable[[bool], Outcome], question: str) -> None:
        """Ask a person on a terminal to confirm the plan. A no ends the command."""
        if not self.will_ask:
            return
        if plan := do(True).actions:
            ids = out.listed([*dict.fromkeys(one for action in plan for one in action.about)])
            sessions = out.listed([*dict.fromkeys(action.session for action in plan)])
            about = ids if ids == sessions else f"{ids} of {sessions}"
            click.confirm(out.one_line(question.format(about)), abort=True, err=True)

    def print(self, found: Any, text: str) -> None:
        """Print `found` as JSON where `--json` is given, else the text."""
        if self.json:
            out.print_json(found)
        else:
            out.say(text)

    def table(self, columns: str, rows: Sequence[Mapping[str, Any]], nothing: str) -> None:
        """Print the rows as JSON, or these columns as a table. Without rows, print `nothing`."""
        if self.json:
            out.print_json(rows)
        elif rows:
            out.print_table(columns, rows)
        else:
            out.tell(nothing, err=True)

    def finish(
        self, outcome: Outcome, *, note: str = "", nothing: str = "There is nothing to do.",
        body: Callable[[], None] | None = None, **further: Any,
    ) -> NoReturn:  # fmt: skip
        """Print the outcome, and exit with 1 if it has a problem.

        `body` prints it in place of the table of actions; `further` is for JSON alone.
        """
        if self.json:
            out.print_json({**out.outcome_json(outcome), **further})
            sys.exit(1 if outcome.problems else 0)
        if body is not None:
            body()
        elif outcome.actions:
            out.print_actions(outcome)
        elif not outcome.problems:
            out.tell(nothing)
        if note and outcome.actions and not outcome.dry_run:
            out.tell(note)
        for sentence in (*(f"note: {one}" for one in outcome.notes),
                         *(f"smp: {one}" for one in outcome.problems)):  # fmt: skip
            out.tell(sentence, err=True)
        sys.exit(1 if outcome.problems else 0)


def command(
    usage: str, *options: str, group: click.Group | None = None
) -> Callable[[Callable[[Call], None]], click.Command]:
    """Declare a command by its usage, as `SESSION [ID]... --json`, and a line for each option.

    The usage names shared options. A line is `--name`, `--name VALUE`, `--name VALUE:default`,
    `--name VALUE...` to be repeated or `--name VALUE!` to be required, then its help.
    VALUE names the type. A command without a group has `--root` and `--json` as well.
    """
    parameters: list[click.Parameter] = []
    words = [*usage.split(), *(() if group or "-" in usage.split() else ("--root", "--json"))]
    for token in (word for word in words if not word.startswith("-")):
        name = token.strip("[].")
        parameters.append(click.Argument(
            [name.lower()], required=not token.startswith("["), metavar=token,
            nargs=-1 if token.endswith("...") else 1, **_VALUES.get(name, {}),
        ))  # fmt: skip
    known = {line.split()[0]: line for line in _SHARED}
    for line in (*options, *(known[word] for word in words if word.startswith("--"))):
        match = _OPTION.fullmatch(line)
        assert match is not None, line
        short, name, value, mark, default, text = match.groups()
        settings: dict[str, Any] = {"is_flag": True}
        if value and "|" in value:
            settings = {"type": Choice(value.split("|"))}
        elif value:
            settings = {"metavar": value, **_VALUES.get(value, {})}
        settings |= {"multiple": True} if mark == "..." else {}
        settings |= {"default": default, "show_default": True} if default else {}
        names = [name, *([short] if short else []), name.strip("-").replace("-", "_")]
        parameters.append(click.Option(names, help=text, required=mark == "!", **settings))

    def declare(function: Callable[[Call], None]) -> click.Command:
        def called(**given: Any) -> None:
            session, ids = given.get("session"), given.get("id")
            if isinstance(session, str) and isinstance(ids, tuple):
                name, slash, inner = session.partition("/")  # SESSION/ID
                named = dict.fromkeys((inner, *ids) if slash else ids)
                given |= {"session": name, "id": tuple(named)}
            call = Call(**given)
            try:
                with out.progress(f"{name_of(function)}:"):
                    function(call)
            finally:
                call.tell_made()
                call.tell_unread()

        made = Command(name_of(function), callback=called, params=parameters,
                       help=function.__doc__)  # fmt: skip
        if group is not None:
            group.add_command(made)
        return made

    return declare


def name_of(function: Callable[[Call], None]) -> str:
    """Return the name of the command that a function is: `import` of `import_`."""
    return function.__name__.rstrip("_")


def _account() -> str:
    from smp_client.disk.audit import account

    return account()


def place_memory(root: str | None, directory: Path | None = None) -> Memory:
    """Return the configured memory of a command, whether it exists or not."""
    from smp_client import Memory

    from ..config import find

    home = find_home(directory or "", root)
    if find() is None:  # without a file, the options that the daemon has published apply
        memory = Memory(home.root)
        memory.home = home
        return memory
    from ..config.file import load

    configured = load()
    is_named = root or os.environ.get("SMP_ROOT")
    is_free = not is_named and (home.is_users or not os.path.isdir(home.root))
    if is_free and len(configured["roots"]) == 1:
        home = find_home(directory or "", str(configured["roots"][0]))
    memory = Memory(home.root, **configured.options)
    memory.home = home
    _tell_other_clients(memory)
    return memory


def _tell_other_clients(memory: Memory) -> None:
    """Publish the settings for programs that use the library, unless a daemon does it."""
    from smp_client import SMPError
    from smp_client.disk.locks import holder
    from smp_client.disk.policy import is_published, publish
    from smp_client.model.layout import LEAD, LEAD_SCOPE, MARKER

    with suppress(OSError, SMPError):  # a tree that is read-only, or of a newer format
        memory.require_known_version()
        if not memory.tree.exists(MARKER) or is_published(memory.tree, memory.options):
            return
        if holder(memory.tree, LEAD_SCOPE, LEAD) is None:
            publish(memory.tree, memory.options)


def find_id(memory: Memory, name: str, *places: str) -> str:
    """Return the id of the session that `name` means, in `places`; with GLOBAL, `global` too."""
    from smp_client.session_name import session_id

    if name == GLOBAL and GLOBAL in places:
        return name
    return session_id(memory, name, [place for place in places if place != GLOBAL])


def find_scope(memory: Memory, name: str) -> GlobalMemory | Session:
    """Return the memories that hold everywhere (`global`), or the session that `name` means."""
    return memory.everywhere if name == GLOBAL else memory.session(name)


def _complete_session(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the sessions, wherever they are, whose ids begin so."""
    from smp_client import Memory
    from smp_client.session_name import sessions_in

    with suppress(Exception):  # an error would be printed into the line that is being typed
        memory, places = Memory(ctx.params.get("root")), (ACTIVE, ARCHIVED, DELETED)
        ids = {name for place in places for name in sessions_in(memory, place)}
        return [name for name in [*sorted(ids), LATEST, GLOBAL] if name.startswith(incomplete)
                and _PLAIN.fullmatch(name)][:_COMPLETIONS]  # fmt: skip
    return []


# The types of values, by the names that they have in the help.
_VALUES: dict[str, dict[str, Any]] = {
    "SESSION": {"shell_complete": _complete_session},
    "TYPE": {"type": Choice(TYPES)},
    "KIND": {"type": Choice(ADDED)},
    "SHELL": {"type": Choice(["bash", "zsh", "fish"])},
    "ACCOUNT": {"default": _account},
    "N": {"type": click.IntRange(min=1)},
    "NUMBER": {"type": click.IntRange(min=0)},
    "BYTES": {"type": int},
    "LIMIT": {"type": click.IntRange(min=2048)},
    "SECONDS": {"type": float},
    "0..1": {"type": click.FloatRange(0, 1)},
    "PCT": {"type": click.FloatRange(0, 100, min_open=True)},
    "PATH": {"type": click.Path(exists=True, allow_dash=True)},
    "CONTENT": {"type": click.File("rb")},
    "ENTRIES": {"type": click.File("rb")},
    "DIR": {"type": click.Path(file_okay=False, path_type=Path)},
}
