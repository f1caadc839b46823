"""Asking from a shell: `smp search`, `smp topics`, `smp timeline` and `smp context`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, GLOBAL

from .arguments import TakingWords, completing, find_scope, json_option, open_memory, root_option, session_argument

if TYPE_CHECKING:
    from pathlib import Path

    from smp_client import Record
    from smp_client.questions.asking import Asking
    from smp_client.topics import Event

SORTS = ("relevance", "priority", "importance", "newest", "oldest")
TYPES = ("turn", "decision", "finding", "preference", "learning", "relationship", "pattern", "state", "artifact",
         "summary")  # fmt: skip
_EXPLAINED = ("match", "priority", "importance", "use", "state", "holds")  # columns, named as in JSON
_FAR_INSIDE = 40  # characters: a match behind these would often be cut off on a terminal
_BEFORE_A_MATCH = 12
_NAMED = 5  # of what is not listed
_ID_COLUMNS = 10  # of a timeline, at most: an id from elsewhere can be longer
_NARROW_COLUMNS = 100  # of a terminal that has no room for the type of each event
_SHARE = click.FloatRange(0, 1)
_WHEN = 'an ISO time, a date, or words: "last 7 days", yesterday'


def _known_types(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """As the library has them, which says what it calls them where one is wrong, and not what they are called here."""
    if not names:
        return ()
    from smp_client.questions.query import type_named

    from .nearby import did_you_mean

    known: list[str] = []
    for name in names:
        problems: list[str] = []
        known.append(type_named(name, problems))
        if problems:
            near = f"{did_you_mean(name, TYPES)} There are {', '.join(TYPES)}.".lstrip()
            raise click.BadParameter(f"{name!r} is no kind of memory. {near}")
    return tuple(known)


since_option = click.option("--since", metavar="WHEN", help=f"Only from then on; {_WHEN}.")
until_option = click.option("--until", metavar="WHEN", help="Only until then, included.")
types_option = click.option(
    "--type", "types", multiple=True, metavar="TYPE", help=f"Only of this kind: {', '.join(TYPES)}; repeat it for several.",
    callback=_known_types,
    shell_complete=lambda _ctx, _param, incomplete: [name for name in TYPES if name.startswith(incomplete)],
)  # fmt: skip


class _Question(TakingWords):
    hint = "Words that begin with a dash go behind --: smp search oauth -- -jwt"


@click.command(cls=_Question, epilog="""\b
smp search oauth tokens --type decision --since "last 7 days"
smp search '"exact phrase" +required' -- -excluded
smp search --session latest --min-priority 0.5 --sort newest""")
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@click.option("--session", metavar="SESSION", shell_complete=completing(ACTIVE, GLOBAL), help="Only this one, or global; else all.")
@types_option
@click.option("--tag", "tags", multiple=True, help="Only with this tag or one below it; repeat it for any of several.")
@click.option("--all-tags", is_flag=True, help="Of several tags all, not any.")
@click.option("--without-tag", "without_tags", multiple=True, metavar="TAG", help="Only without it; repeat it for several.")
@click.option("--agent", "agents", multiple=True, help="Only from this agent or person; repeat it for several.")
@since_option
@until_option
@click.option("--min-priority", type=_SHARE, metavar="0..1", help="Only what matters at least so much now.")
@click.option("--only-alive", is_flag=True, help="Only what has not decayed.")
@click.option("--confidence", multiple=True, help="Only of this confidence; repeat it for several.")
@click.option("--min-relevance", type=_SHARE, metavar="0..1", help="Only with at least this score.")
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", default=20, show_default=True, help="So many at most.")
@click.option("--offset", type=click.IntRange(min=0), metavar="N", default=0, help="Leave out so many of the first.")
@click.option("--explain", is_flag=True, help="Say what each score is made of.")
@click.option("--no-count", is_flag=True, hidden=True, expose_value=False)  # as it is now always
@root_option
@json_option
def search(
    words: tuple[str, ...], session: str | None, only_alive: bool, explain: bool, root: str | None, as_json: bool,
    **filters: Any,
) -> None:  # fmt: skip
    """Find the memories that match a text best.

    Without a text, those that matter most now. Any of the words may match; "a phrase" and +word must, -word (behind --) must
    not, auth* is the beginning of a word, and AND, OR, NOT and ( ) work too.
    """
    from .output import one_line, print_json

    text = " ".join(words)
    memory = open_memory(root)
    asked = memory if session is None else find_scope(memory, session)
    given = {name: value for name, value in filters.items() if value is not None and value != ()}
    found = asked.search(text, include_decayed=not only_alive, explain=explain, **given)
    if found.note:
        click.echo(one_line(found.note), err=True)
    if as_json:
        print_json([_result_json(record, memory.root) for record in found])
    elif found:
        _print_results(found, text, names_session=session is None, explain=explain)
    else:
        click.echo("No memory matches.", err=True)


def _asked(root: str | None, session: str | None) -> Asking:
    """All sessions together with what holds everywhere, or one of them."""
    memory = open_memory(root)
    return memory if session is None else find_scope(memory, session)


def _result_json(record: Record, root: Path) -> dict[str, Any]:
    from .output import record_json

    whole = {
        **record_json(record), "score": record.score, "explanation": record.explanation,
        "rationale": record.data.get("rationale"), "file": str(root / record.file) if record.file else None,
    }  # fmt: skip
    names = ["id", "session", "type", "timestamp", "by", "score", "priority", "text", "rationale", "tags", "marks", "file"]
    return {name: whole[name] for name in (*names, *(["explanation"] if record.explanation is not None else []))}


def _print_results(found: Sequence[Record], question: str, *, names_session: bool, explain: bool) -> None:
    from .output import Column, marked, on_terminal, print_table, short_time

    terminal = on_terminal()
    titles = [Column("SCORE", right=True), Column("ID", style=lambda _: {"fg": "cyan"}), Column("TYPE", spare=True),
              Column("WHEN", spare=explain)]  # fmt: skip
    if names_session:
        titles.insert(2, Column("SESSION", ends=True))
    titles += [Column(name.upper(), right=True) for name in _EXPLAINED] if explain else []
    rows: list[list[object]] = []
    for record in found:
        when = short_time(record.timestamp)
        text = said(record.type, record.text, record.data)
        row: list[object] = [_figure(record.score), record.id, short_type(record.type), when[:10] if terminal else when]
        if names_session:
            row.insert(2, record.session)
        row += [_figure((record.explanation or {}).get(name)) for name in _EXPLAINED] if explain else []
        rows.append([*row, marked(_around_a_match(text, question) if terminal else text, record.marks)])
    print_table([*titles, Column("TEXT", least=40)], rows)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _around_a_match(text: str, question: str) -> str:
    """Of a text that matches far inside, the part that does."""
    from smp_client.questions.text import words

    # Words are stemmed, so that the end of one need not be in the text.
    beginnings = [re.escape(word[: max(4, len(word) - 3)]) for word in words(question)]
    match = re.search(rf"\b(?:{'|'.join(beginnings)})", text, re.IGNORECASE) if beginnings else None
    if match is None or match.start() <= _FAR_INSIDE:
        return text
    before = text[match.start() - _BEFORE_A_MATCH : match.start()]
    return "…" + before[before.find(" ") + 1 :] + text[match.start() :]


def said(type: str, text: str, fields: Mapping[str, Any]) -> str:
    """What a memory says; the text of a relationship is only its name."""
    if type != "relationship":
        return text
    return " ".join(str(fields.get(name) or "?") for name in ("source", "relationship", "target"))


def short_type(type: str) -> str:
    from smp_client.records import type_of

    return {"agent_state": "state"}.get(type, type_of(type))


@click.command()
@session_argument(ACTIVE, GLOBAL, required=False)
@root_option
@json_option
def topics(session: str | None, root: str | None, as_json: bool) -> None:
    """What SESSION, or everything, is about.

    The most mentioned comes first.
    """
    from .output import Column, print_json, print_table, short_time

    found = _asked(root, session).topics()
    if as_json:
        print_json([asdict(topic) for topic in found])
    elif not found:
        click.echo("There are no topics: no memory has a tag.", err=True)
    else:
        columns = [Column("TOPIC", gives_way=True, style=lambda _: {"fg": "cyan"}), Column("MENTIONS", right=True),
                   Column("WEIGHT", right=True), Column("FIRST", spare=True), Column("LAST"),
                   Column("SUBTOPICS", least=20)]  # fmt: skip
        print_table(columns, [
            (topic.name, topic.mentions, f"{topic.weight:.2f}", short_time(topic.first_mentioned), short_time(topic.last_mentioned),
             ", ".join(topic.subtopics))
            for topic in found
        ])  # fmt: skip


@click.command()
@session_argument(ACTIVE, GLOBAL, required=False)
@since_option
@until_option
@types_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@root_option
@json_option
def timeline(
    session: str | None, since: str | None, until: str | None, types: tuple[str, ...], limit: int | None, root: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """What happened in SESSION, or everywhere, in order.

    Times are in UTC. Memories that have none are not listed, and named on stderr.
    """
    from .output import on_terminal, print_json

    whole = _asked(root, session).timeline(since, until)
    found = [event for event in whole if not types or event.type in types]
    if limit is not None and len(found) > limit:
        click.echo(f"{len(found) - limit:,} earlier ones are not listed.", err=True)
        found = found[-limit:]
    _say_without_time([one for one in whole.without_time if not types or one[0] in types], names_session=session is None)
    if as_json:
        print_json([_event_json(event) for event in found])
    elif not found:
        click.echo("Nothing happened then." if since or until or types else "Nothing has happened yet.", err=True)
    elif on_terminal():
        _print_hours(found, names_session=session is None)
    else:
        _print_events(found, names_session=session is None)


def _say_without_time(those: Sequence[tuple[str, str, str]], *, names_session: bool) -> None:
    """Also beside JSON, which is a list of what has a time."""
    from .output import one_line

    if those:
        names = [f"{session}/{memory_id}" if names_session else memory_id for _, session, memory_id in those]
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        what = "1 memory has no time, and is" if len(those) == 1 else f"{len(those):,} memories have no time, and are"
        click.echo(one_line(f"{what} not listed: {', '.join(names[:_NAMED])}{more}"), err=True)


def _event_json(event: Event) -> dict[str, Any]:
    return {
        "id": event.ref, "session": event.session, "type": event.type, "timestamp": event.timestamp, "actor": event.actor or None,
        "text": event.text, "topics": event.topics, "marks": event.marks, **event.further,
    }  # fmt: skip


def _print_events(found: Sequence[Event], *, names_session: bool) -> None:
    from .output import Column, marked, print_table, short_time

    columns = [Column("WHEN"), *([Column("SESSION")] if names_session else []), Column("ID"), Column("TYPE"), Column("WHO"),
               Column("TEXT")]  # fmt: skip
    print_table(columns, [
        (short_time(event.timestamp), *([event.session] if names_session else []), event.ref, short_type(event.type), event.actor,
         marked(said(event.type, event.text, event.further), event.marks))
        for event in found
    ])  # fmt: skip


def _print_hours(found: Sequence[Event], *, names_session: bool) -> None:
    """A heading for each hour in which something happened, and of each session in it."""
    import shutil

    from .output import cut, cut_text, marked, one_line, say, short_time, styled

    columns = shutil.get_terminal_size().columns
    ids = min(max(len(event.ref) for event in found), _ID_COLUMNS)
    lines: list[str] = []
    above = ""
    for event in found:
        day, _, clock = short_time(event.timestamp).partition(" ")
        heading = f"{day} {clock[:2]}:00" + (f"  {event.session}" if names_session else "")
        if heading != above:
            lines += [*([""] if above else []), styled(cut(one_line(heading), columns), bold=True)]
            above = heading
        # What comes first is all that can be told from a text that goes on for a megabyte.
        text = one_line(marked(said(event.type, event.text, event.further)[: 8 * columns], event.marks))
        who = f"{one_line(event.actor)}: " if event.actor else ""
        type = "" if columns < _NARROW_COLUMNS else f"{short_type(event.type):<12}  "
        rest = f"{one_line(event.ref):<{ids}}  {type}{who}{text}"
        lines.append(styled(f"  {clock}", dim=True) + "  " + cut_text(rest, max(columns - 9, 1)))
    say("\n".join(lines))


@click.command(epilog="""\b
smp context --task "add a login form"
smp context --agent architect --project Shop --max-tokens 800
smp context --session latest --explain""")
@click.argument("session", required=False, metavar="[SESSION]", shell_complete=completing(ACTIVE))
@click.option("--session", "session_option", metavar="SESSION", shell_complete=completing(ACTIVE),
              help="For going on with this session: adds its own memories, and means its project.")  # fmt: skip
@click.option("--project", help="Only this project of the tree; others only where they match the task.")
@click.option("--all", "is_all", is_flag=True, help="Every project of the tree, also with --session.")
@click.option("--agent", metavar="AGENT", help="For this agent: with its own state and next steps.")
@click.option("--task", help="What is to be done: what matches it comes first.")
@click.option("--topic", help="Of decisions, learnings and preferences, only what is about this.")
@click.option("--max-tokens", type=int, metavar="N", help="No longer than about so many tokens; 1500 unless given.")
@click.option("--explain", is_flag=True, help="Say why each memory is there, and what was left out.")
@root_option
@json_option
def context(
    session: str | None, session_option: str | None, is_all: bool, project: str | None, root: str | None, as_json: bool,
    **about: Any,
) -> None:  # fmt: skip
    """What an agent should know before it goes on, as Markdown for its prompt.

    Without a session it is about the project of the working directory: all sessions of its tree, archived ones too.
    """
    from .output import harmless, print_json, say

    if is_all and project is not None:
        raise click.UsageError("Give either --project or --all.")
    memory = open_memory(root)
    name = session_option or session
    found = memory.session(name).id if name is not None else None
    project = "*" if is_all else project
    text = memory.context(session=found, project=project, **about)
    if as_json:
        said = {"session": found, "project": project, **about, "context": str(text)}
        lists = {"included": text.included, "left_out": text.left_out}
        print_json(said | {name: [{"id": id, "why": why} for id, why in pairs] for name, pairs in lists.items()})
    else:
        say(harmless(text.removesuffix("\n")))
