"""Questions from a shell: `smp search`, `smp topics`, `smp timeline` and `smp context`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from smp_client.model.layout import ACTIVE, GLOBAL

from . import output as out
from .arguments import (
    Call,
    TakingWords,
    check_usage,
    completing,
    find_scope,
    flag,
    option,
    session_argument,
    since_option,
    tags_option,
    takes,
    types_option,
    until_option,
)

if TYPE_CHECKING:
    from smp_client import Memory, Record
    from smp_client.index.topics import Event
    from smp_client.session import RecordFiles

SORTS = ("relevance", "priority", "importance", "newest", "oldest")
_EXPLAINED = ("match", "priority", "importance", "use", "state", "holds")  # as in JSON
_FAR_INSIDE = 40  # characters: a match behind these would often be cut off on a terminal
_BEFORE_A_MATCH = 12
_SHARE = click.FloatRange(0, 1)
_COUNT = click.IntRange(min=1)


class _Question(TakingWords):
    hint = "Words that begin with a dash go behind --: smp search oauth -- -jwt"


@click.command(cls=_Question, epilog="""\b
smp search oauth tokens --type decision --since "last 7 days"
smp search '"exact phrase" +required' -- -excluded
smp search --session latest --min-priority 0.5 --sort newest""")
@click.argument("words", nargs=-1, metavar="[TEXT]...")
@option("--session", "Only this one, or global; else all.",
        metavar="SESSION", shell_complete=completing(ACTIVE, GLOBAL))  # fmt: skip
@types_option
@tags_option
@flag("--all-tags", "Of several tags all, not any.")
@option("--without-tag", "Only without it; repeat it for several.",
        to="without_tags", multiple=True, metavar="TAG")  # fmt: skip
@option("--agent", "Only from this agent or person; repeat it for several.",
        to="agents", multiple=True)  # fmt: skip
@since_option
@until_option
@option("--min-priority", "Only of this priority now.", type=_SHARE, metavar="0..1")
@flag("--only-alive", "Only memories that have not decayed.")
@option("--confidence", "Only of this confidence; repeat it for several.", multiple=True)
@option("--min-relevance", "Only with at least this score.", type=_SHARE, metavar="0..1")
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True)
@option("--limit", "At most N.", type=_COUNT, metavar="N", default=20, show_default=True)
@option("--offset", "Leave out the first N.", type=click.IntRange(min=0), metavar="N", default=0)
@flag("--explain", "Say what each score is made of.")
@click.option("--no-count", is_flag=True, hidden=True, expose_value=False)  # as it is now always
@takes()
def search(
    call: Call, words: tuple[str, ...], session: str | None, only_alive: bool, **filters: Any
) -> None:
    """Find the memories that match a text best.

    Without a text, those that matter most now. Any of the words may match; "a phrase" and +word
    must, -word (behind --) must not, auth* is the beginning of a word, and AND, OR, NOT and ( )
    work too.
    """
    text = " ".join(words)
    memory = call.memory()
    asked = memory if session is None else find_scope(memory, session)
    given = {name: value for name, value in filters.items() if value is not None and value != ()}
    found = asked.search(text, include_decayed=not only_alive, **given)
    if found.note:
        click.echo(out.one_line(found.note), err=True)
    if call.as_json:
        out.print_json([_result_json(record, str(memory.root)) for record in found])
    elif found:
        _print_results(found, text, is_all=session is None, explain=filters["explain"])
    else:
        click.echo("No memory matches.", err=True)


def _result_json(record: Record, root: str) -> dict[str, Any]:
    whole = {
        **out.record_json(record), "score": record.score, "rationale": record.data.get("rationale"),
        "file": f"{root}/{record.file}" if record.file else None,
    }  # fmt: skip
    names = ("id", "session", "type", "timestamp", "by", "score", "priority", "text", "rationale",
             "tags", "marks", "file")  # fmt: skip
    explained = {} if record.explanation is None else {"explanation": record.explanation}
    return {name: whole[name] for name in names} | explained


def _print_results(found: Sequence[Record], question: str, *, is_all: bool, explain: bool) -> None:
    parts = " ".join(f"{name.upper()}>" for name in _EXPLAINED) if explain else ""
    session = "SESSION~" if is_all else ""
    rows: list[list[object]] = []
    for record in found:
        when, text = out.short_time(record.timestamp), said(record.type, record.text, record.data)
        if out.on_terminal():
            when, text = when[:10], _around_a_match(text, question)
        shares = [_figure((record.explanation or {}).get(name)) for name in _EXPLAINED if explain]
        first = [_figure(record.score), record.id, *[record.session][: is_all]]
        marked = out.marked(text, record.marks)
        rows.append([*first, out.short_type(record.type), when, *shares, marked])
    when = "WHEN?" if explain else "WHEN"
    out.print_table(f"SCORE> ID@ {session} TYPE? {when} {parts} TEXT:40", rows)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _around_a_match(text: str, question: str) -> str:
    """Return of a text that matches far inside the part that does."""
    from smp_client.ask.text import words

    # Words are stemmed, so that the end of one need not be in the text.
    beginnings = [re.escape(word[: max(4, len(word) - 3)]) for word in words(question)]
    pattern = rf"\b(?:{'|'.join(beginnings)})"
    match = re.search(pattern, text, re.IGNORECASE) if beginnings else None
    if match is None or match.start() <= _FAR_INSIDE:
        return text
    before = text[match.start() - _BEFORE_A_MATCH : match.start()]
    return "…" + before[before.find(" ") + 1 :] + text[match.start() :]


def said(type: str, text: str, fields: Mapping[str, Any]) -> str:
    """Return the text of a memory; that of a relationship is only its name."""
    if type != "relationship":
        return text
    return " ".join(str(fields.get(name) or "?") for name in ("source", "relationship", "target"))


def _asked(call: Call, session: str | None) -> Memory | RecordFiles:
    memory = call.memory()
    return memory if session is None else find_scope(memory, session)


@click.command()
@session_argument(ACTIVE, GLOBAL, required=False)
@takes()
def topics(call: Call, session: str | None) -> None:
    """List the topics of SESSION, or of everything.

    The most mentioned comes first.
    """
    found = _asked(call, session).topics()
    if call.as_json:
        out.print_json([asdict(topic) for topic in found])
    elif not found:
        click.echo("There are no topics: no memory has a tag.", err=True)
    else:
        out.print_table("TOPIC@- MENTIONS> WEIGHT> FIRST? LAST SUBTOPICS:20", [
            (one.name, one.mentions, f"{one.weight:.2f}", out.short_time(one.first_mentioned),
             out.short_time(one.last_mentioned), ", ".join(one.subtopics)) for one in found
        ])  # fmt: skip


@click.command()
@session_argument(ACTIVE, GLOBAL, required=False)
@since_option
@until_option
@types_option
@option("--limit", "Only the last N.", type=_COUNT, metavar="N")
@takes()
def timeline(
    call: Call, session: str | None, since: str | None, until: str | None, types: tuple[str, ...],
    limit: int | None,
) -> None:  # fmt: skip
    """List memories in the order of time.

    Without SESSION, those of all. Times are in UTC. Memories without a time are named on stderr.
    """
    whole = _asked(call, session).timeline(since, until)
    found = [event for event in whole if not types or event.type in types]
    if limit is not None and len(found) > limit:
        click.echo(f"{len(found) - limit:,} earlier ones are not listed.", err=True)
        found = found[-limit:]
    timeless = [f"{name}/{one}" if session is None else one
                for type, name, one in whole.without_time if not types or type in types]
    if timeless:
        out.tell(f"Without a time, and not listed: {out.listed(timeless)}.", err=True)
    if call.as_json:
        out.print_json([_event_json(event) for event in found])
    elif not found:
        click.echo("Nothing happened then.", err=True)
    else:
        titles = f"WHEN {'SESSION~' if session is None else ''} ID@ TYPE? WHO? TEXT:30"
        out.print_table(titles, [
            (out.short_time(event.timestamp), *[event.session][: session is None], event.ref,
             out.short_type(event.type), event.actor, _event_text(event)) for event in found
        ])  # fmt: skip


def _event_text(event: Event) -> str:
    return out.marked(said(event.type, event.text, event.further), event.marks)


def _event_json(event: Event) -> dict[str, Any]:
    return {
        "id": event.ref, "session": event.session, "type": event.type, "timestamp": event.timestamp,
        "actor": event.actor or None, "text": event.text, "topics": event.topics,
        "marks": event.marks, **event.further,
    }  # fmt: skip


@click.command(epilog="""\b
smp context --task "add a login form"
smp context --agent architect --project Shop --max-tokens 800
smp context --session latest --explain""")
@click.argument("session", required=False, metavar="[SESSION]", shell_complete=completing(ACTIVE))
@option("--session", "For going on with this session: with its own memories, and its project.",
        to="session_option", metavar="SESSION", shell_complete=completing(ACTIVE))  # fmt: skip
@option("--project", "Only this project; others only where they match the task.")
@flag("--all", "Every project of the tree.", to="is_all")
@option("--agent", "For this agent: with its own state and next steps.", metavar="AGENT")
@option("--task", "The task: memories that match it come first.")
@option("--topic", "Of decisions, learnings and preferences, only those about this.")
@option("--max-tokens", "At most about N tokens; else 1500.", type=int, metavar="N")
@flag("--explain", "Say why each memory is there, and which were left out.")
@takes()
def context(
    call: Call, session: str | None, session_option: str | None, is_all: bool, project: str | None,
    **about: Any,
) -> None:  # fmt: skip
    """Print what an agent should know, as Markdown for its prompt.

    Without a session it is about the project of the working directory: all sessions of its tree,
    archived ones too.
    """
    check_usage((is_all and project is not None, "Give either --project or --all."))
    memory = call.memory()
    name = session_option or session
    found = memory.session(name).id if name is not None else None
    project = "*" if is_all else project
    text = memory.context(session=found, project=project, **about)
    if call.as_json:
        lists = {"included": text.included, "left_out": text.left_out}
        reasons = {name: [{"id": id, "why": why} for id, why in pairs]
                   for name, pairs in lists.items()}  # fmt: skip
        said = {"session": found, "project": project, **about, "context": str(text)}
        out.print_json(said | reasons)
    else:
        out.say(out.harmless(text.removesuffix("\n")))
