"""Decisions, findings, preferences and learnings that bear on a topic, as questions to the index.

A memory that has the topic as a tag, or one below it, stands before one that only says it in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..ask.engine import by_topic, find, ranked, read
from ..ask.options import NEWEST, Answer, Wanted, one_of
from ..ask.priorities import View
from ..index.sql import Sql
from ..index.validity import holds
from ..model.layout import GLOBAL
from ..model.record import Record
from ..model.severity import RANK, rank

EVERY = "*"
_WORST = f"{RANK}, score DESC, {NEWEST}"
_WORD = re.compile(r"[^\W_]+")
_CONFIDENCE = {"explicit": 0, "inferred": 1}  # whatever else it is, it comes last
_CONFIDENCE_RANK = (
    "CASE json_extract(m.data, '$.confidence')"
    " WHEN 'explicit' THEN 0 WHEN 'inferred' THEN 1 ELSE 2 END"
)


def about(view: View, want: Wanted, types: Sequence[str], topic: str | None = None) -> Answer:
    """Return the memories of these types, those that matter most first."""
    want = want.also(one_of("m.type", types))
    if topic is None:
        return find(view, want)
    first = replace(want, limit=None if want.limit is None else want.offset + want.limit, offset=0)
    found = by_topic(view, first, topic)
    known = {(record.session, record.type, record.id) for record in found}
    if said := " ".join(words_of(topic)):
        saying = Sql(
            "m.key IN (SELECT rowid FROM words WHERE words MATCH ?)", (f'{{text more}} : "{said}"',)
        )
        found += [
            record
            for record in find(view, first.also(saying))
            if (record.session, record.type, record.id) not in known
        ]
    return page(found, want)


def findings(
    view: View, want: Wanted, topic: str | None = None, *, unresolved_only: bool = True
) -> Answer:
    """Return findings, the most severe first."""
    if unresolved_only:
        want = want.also(holds())
    if topic is None:
        return about(view, replace(want, order=want.order or _WORST), ["finding"])
    return page(
        sorted(about(view, replace(want, limit=None, offset=0), ["finding"], topic), key=severity),
        want,
    )


def named(names: Sequence[str]) -> Sql:
    """Return the condition that a memory is one of these, each given as `session/DEC-001`."""
    return Sql("m.scope || '/' || m.id IN (SELECT value FROM json_each(?))", (json.dumps(names),))


def preferences(
    view: View, want: Wanted, topic: str | None, project: str | None, *, general: bool = True
) -> Answer:
    """Return the preferences that apply: explicit ones first, then those of the session.

    A preference without topic, domains and tags is general: it applies to every topic.
    """
    order = f"{_CONFIDENCE_RANK}, m.scope = '{GLOBAL}', {want.order or f'score DESC, {NEWEST}'}"
    # Without a topic those that are not read yet come behind the others.
    needed = None if topic is not None or want.limit is None else want.offset + want.limit
    of_kind = replace(
        want.also(one_of("m.type", ["preference"])), order=order, offset=0, limit=needed
    )
    kept: list[tuple[tuple[int, bool, bool], Record]] = []
    while found := ranked(view, of_kind):
        for record in read(view, found):
            named = topic is not None and is_about(record, topic)
            applies = topic is None or named or (general and is_general(record))
            if applies and applies_to_project(record, project):
                confidence = _CONFIDENCE.get(str(record.data.get("confidence")), len(_CONFIDENCE))
                kept.append(((confidence, record.session == GLOBAL, not named), record))
        if needed is None or len(kept) >= needed:
            break
        of_kind = replace(of_kind, offset=of_kind.offset + len(found), limit=4 * len(found))
    return page([record for _, record in sorted(kept, key=lambda item: item[0])], want)


def page(found: Sequence[Record], want: Wanted) -> Answer:
    """Return the part of an answer that was asked for."""
    return Answer(found[want.offset : None if want.limit is None else want.offset + want.limit])


def severity(record: Record) -> int:
    """Return how severe a finding is; 0 is the worst."""
    return rank(record.data.get("severity"))


# Whether a preference applies.


def applies_to_project(record: Record, project: str | None) -> bool:
    projects = _applies_to(record, "projects")
    return (
        not projects
        or EVERY in projects
        or (project is not None and _loose(project) in map(_loose, projects))
    )


def is_about(record: Record, topic: str) -> bool:
    """Return whether domains, topic, tags or words of a preference are about the topic.

    A wider topic bears on a narrower one, and the reverse.
    """
    domains = _applies_to(record, "domains")
    names = [*domains, *record.tags, *_texts(record.data.get("topic"))]
    if EVERY in domains or any(
        _meet(words_by_level(name), words_by_level(topic)) for name in names
    ):
        return True
    phrase = words_of(topic)
    spoken = [words_of(text) for text in (record.text, *_texts(record.data.get("context")), *names)]
    return bool(phrase) and any(_stands_in(phrase, words) for words in spoken)


def is_general(record: Record) -> bool:
    return not (_applies_to(record, "domains") or record.tags or record.data.get("topic"))


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def words_by_level(name: str) -> list[str]:
    """Return `security`, `user login` for `Security.User-Login`."""
    return [_loose(level) for level in name.split(".")]


def _meet(one: list[str], other: list[str]) -> bool:
    """Return whether one topic is the other, or below it."""
    short = min(len(one), len(other))
    return any(one) and one[:short] == other[:short]


def _stands_in(phrase: list[str], words: list[str]) -> bool:
    return any(
        words[start : start + len(phrase)] == phrase
        for start in range(len(words) - len(phrase) + 1)
    )


def _loose(name: str) -> str:
    return " ".join(words_of(name))


def _applies_to(record: Record, part: str) -> list[str]:
    applies_to = record.data.get("applies_to")
    return _texts(applies_to.get(part)) if isinstance(applies_to, dict) else []


def _texts(value: Any) -> list[str]:
    """Return a text, or a list of texts, as a list."""
    if value is None:
        return []
    return (
        [str(item) for item in value if item is not None]
        if isinstance(value, list)
        else [str(value)]
    )
