"""One engine for every question: the memories that answer it, in their order, with their scores.

A question with a limit first finds the keys of the memories that answer it, and then reads just
those. Priority and rank depend on columns alone; the formulas are those of model/priority.py and
model/ranking.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ..disk.place import ARCHIVE, archived_scope, directory_of, is_archived, session_of
from ..index.database import NAMED
from ..index.meaning import has_vectors
from ..index.mentions import TAG
from ..index.sql import Sql
from ..index.validity import EVICTED, holds, is_away, marks
from ..index.validity import STATE as ARCHIVED
from ..model.errors import InvalidQuery
from ..model.quotation import shown
from ..model.record import FOLDERS, TURN, Record, split_folder, type_of
from .argument import sayable
from .bm25 import Words, known, matching_count, owned, strengths
from .nearness import with_meaning
from .options import NEWEST, Answer, Wanted, one_of
from .priorities import Columns, View, source
from .text import IDENTIFIER, Term, question_of, quoted, words
from .unknown import unknown_topic
from .wildcards import expander

_CANDIDATES = 100  # the best by text alone, whose order priority and importance can change
_LOOKED_UP = 2  # words: whoever looks for a word or two wants to see them, and not the turns beside
_FILES = {*FOLDERS.values()}  # the types of memories that are files
_NAMED_CAP = 8  # ids in one question
_LIKENESS_WORDS = 24
_WORD = re.compile(r"[^\W_]+")
_Matches = dict[int, tuple[float, dict[str, float] | None]]  # by key: the score and its parts
_READ = "m.key, m.id, m.type, m.scope, m.file, m.data, m.text, m.key IN (SELECT memory FROM past)"


def find(view: View, want: Wanted, text: str = "") -> Answer:
    """Return the memories that are wanted; those that match the text, where it has words."""
    notes: list[str] = []
    question = question_of(text, expander(view, notes))
    notes += question.notes
    if not question.terms and question.test is None and text.strip():
        return Answer(note=f"There is no word to look for in {shown(text)}.")
    if question.test is not None:
        want = want.also(question.test)
    if not question.terms or question.is_open:
        answer = Answer(list(records(view, want).values()))
        answer.add_notes(notes)
        answer.total = _total(want, len(answer), lambda: _count(view, want))
        return answer
    # From the beginning, so that every page is one of the same whole.
    whole = want._replace(offset=0, limit=want.end)
    found: _Matches = {}
    if names := IDENTIFIER.findall(text)[:_NAMED_CAP]:  # the memories with these ids come first
        forms = [form for name in names for form in (name, name.upper(), name.lower())]
        by_id = records(view, whole.also(one_of("m.id", forms)))
        found = {key: (1.0, one.explanation) for key, one in by_id.items()}
    is_plain = question.test is None
    terms = known(view, question.terms, text if is_plain else "")
    around = is_plain and len(question.terms) > _LOOKED_UP
    if is_plain and has_vectors(view.index):
        terms = terms._replace(meant=text)
    for key, match in _matching(view, whole, terms, around).items():
        found.setdefault(key, match)
    answer = _read(view, dict([*found.items()][want.offset : want.end]))
    answer.add_notes([*notes, *([terms.note] if terms.note else [])])
    answer.total = _total(want, len(answer), lambda: _count_matching(view, want, terms))
    answer.by = "words and meaning" if terms.meant else "words"
    return answer


def _total(want: Wanted, shown: int, count: Callable[[], int]) -> int | None:
    """Return how many memories there are on all pages; None if that would have to be counted."""
    is_last = want.limit is None or shown < want.limit
    if is_last and (shown or not want.offset):
        return want.offset + shown
    return max(count(), want.offset + shown if shown else 0) if want.with_total else None


def _count(view: View, want: Wanted) -> int:
    """Return how many memories are wanted without a text."""
    if want.min_relevance is not None:
        return len(records(view, want._replace(limit=None, offset=0)))
    condition, given = where(view, want._replace(limit=None))
    joined, columns = source(view, by_key=want.has_keys)
    if want.min_priority is None:
        joined = "FROM memories m"
    else:
        condition += f" AND {columns.priority} >= {float(want.min_priority)}"
    asked = f"SELECT COUNT(*) {joined} WHERE {condition}"
    return int(view.index.execute(asked, given).fetchone()[0])


def _count_matching(view: View, want: Wanted, terms: Words) -> int:
    """Return how many memories match the terms. Turns beside them do not count."""
    if want.min_relevance is not None:
        whole = want._replace(limit=None, offset=0)
        return len(_matching(view, whole, terms, around=False))
    tables, test = _tested(view, want)
    return matching_count(view, terms, tables, test)


def similar(
    view: View, want: Wanted, text: str, itself: Record | None = None, *, by_meaning: bool = True
) -> Answer:
    """Return memories whose text is like this one; of a memory, all but itself."""
    if itself is not None:
        own = (scope_of(itself), itself.id)
        want = want.also(Sql("NOT (m.scope = ? AND m.id = ?)", own))
    return _read(view, _alike(view, want, text, by_meaning=by_meaning))


def likenesses(view: View, want: Wanted, text: str) -> dict[int, float]:
    """Return how much memories are like a text, by their keys, if they are at all."""
    found = _alike(view, want, text, by_meaning=True)
    return {key: score for key, (score, _) in found.items() if score}


def _alike(view: View, want: Wanted, text: str, *, by_meaning: bool) -> _Matches:
    # Longer words are rarer, and say what a text is about.
    telling = sorted(words(text), key=len, reverse=True)[:_LIKENESS_WORDS]
    terms = [Term(word, quoted(word)) for word in telling]
    looked_up = known(view, terms)
    if by_meaning and has_vectors(view.index):
        looked_up = looked_up._replace(meant=text)
    return _matching(view, want, looked_up, around=False)


def scope_of(record: Record) -> str:
    """Return the scope that a memory of an answer is from."""
    return archived_scope(record.session) if is_away(record.marks) else record.session


def by_topic(view: View, want: Wanted, topic: str) -> Answer:
    """Return the memories of a topic or one below it, and turns that say it or refer to such."""
    answer = find(view, want._replace(has_keys=True).also(is_about(view, topic)))
    if not answer and not find(view, Wanted((is_about(view, topic),), limit=1, has_keys=True)):
        answer.add_notes(unknown_topic(view, topic))
    return answer


def is_about(view: View, topic: str) -> Sql:
    """Return the condition that a memory is about a topic."""
    found = about(view, topic)
    return Sql(f"m.key IN ({found.text})", found.parameters)


def about(view: View, topic: str) -> Sql:
    """Return a query for the keys of the memories that are about a topic."""
    scopes = view.within("scope")
    found = f"SELECT memory FROM topics WHERE {scopes.text} AND topic = ?"
    given = (*scopes.parameters, sayable(topic).lower())
    if said := " ".join(_WORD.findall(topic)):
        found += (
            " UNION ALL SELECT w.key FROM words CROSS JOIN memories w ON w.key = words.rowid"
            f" WHERE words MATCH ? AND w.type = '{TURN.name}'"
        )
        given = (*given, owned(view, f'{{text}} : "{said}"'))
    return Sql(found, given)


def keys_of(view: View, want: Wanted) -> set[tuple[str, str, str]]:
    """Return the file, the type and the id of each memory that is wanted."""
    condition, given = where(view, want)
    asked = f"SELECT m.file, m.type, m.id FROM memories m WHERE {condition}"
    return set(view.index.execute(asked, given))


def of_id(view: View, memory_id: str) -> Answer:
    """Return the memories of this id, one of each session; a record before a file of that name.

    Raise InvalidQuery where a state and an artifact have the name, and it does not say which.
    """
    type, bare = split_folder(memory_id)
    named = Sql(f"m.id = ? AND {NAMED}", (sayable(bare),))
    want = Wanted((named, one_of("m.type", [type])) if type else (named,))
    first: dict[str, Record] = {}
    for record in find(view, want):
        known = first.get(record.session)
        if known is None or known.type in _FILES or is_away(known.marks):
            first[record.session] = record
        is_second = known is not None and {known.type, record.type} == _FILES
        if known and is_second and not is_away([*known.marks, *record.marks]):
            raise two_of(memory_id)
    return Answer(list(first.values()))


def two_of(name: str) -> InvalidQuery:
    """Return the error for a name that a state and an artifact of one session have."""
    both = " or ".join(f"{folder}/{name}" for folder in FOLDERS)
    said = f"{name!r} is the name of an agent's state and of an artifact."
    return InvalidQuery(said, advice=f"Name it {both}.")


def of_ids(view: View, want: Wanted, scope: str, ids: Sequence[str]) -> Answer:
    """Return those of these ids that are wanted, in no order."""
    these = (scope, json.dumps(list(ids)))
    named = Sql("m.scope = ? AND m.id IN (SELECT value FROM json_each(?))", these)
    return find(view, want._replace(limit=None, offset=0, order=None).also(named))


def _read(view: View, found: _Matches) -> Answer:
    """Return the records of these matches, in their order."""
    by_key = records(view, of_keys([*found]))
    for key, match in found.items():
        by_key[key].score, by_key[key].explanation = match
    return Answer([by_key[key] for key in found])


def records(view: View, want: Wanted) -> dict[int, Record]:
    """Return the memories that are wanted without a text by their keys, in their order."""
    joined, columns = source(view, by_key=want.has_keys)
    weights = view.weights
    whole = weights.time + weights.importance + weights.access or 1.0
    still = "1.0" if holds() in want.conditions else columns.holds
    score = (
        f"({weights.time} * {columns.priority} + {weights.importance} * m.importance"
        f" + {weights.access} * {columns.recency}) / {whole} * {columns.state} * {still}"
    )
    condition, given = where(view, want)
    for expression, value in ((columns.priority, want.min_priority), (score, want.min_relevance)):
        condition += "" if value is None else f" AND {expression} >= {float(value)}"
    order = want.order or f"score DESC, {NEWEST}"
    rest = f"WHERE {condition} ORDER BY {order}"
    if want.limit is not None or want.offset:  # even a limit that none exceeds takes time
        rest += " LIMIT ? OFFSET ?"
        given += [-1 if want.limit is None else want.limit, want.offset]
    ask = view.index.execute
    if want.limit is not None:
        # First which these are, by as few numbers as that takes; the others only for those.
        numbers = {"priority": columns.priority, "score": score}
        used = "".join(f", {value} AS {name}" for name, value in numbers.items() if name in order)
        is_plain = not used and want.min_priority is None and want.min_relevance is None
        found = ask(f"SELECT m.key{used} {'FROM memories m' if is_plain else joined} {rest}", given)
        keys = [key for key, *_ in found]
        by_key = records(view, of_keys(keys)._replace(explain=want.explain))
        return {key: by_key[key] for key in keys}
    parts = _parts(columns) if want.explain else f"{columns.priority} AS priority"
    read = f"{_READ}, {columns.accesses}, {columns.last}"
    rows = ask(f"SELECT {read}, {score} AS score, {parts} {joined} {rest}", given)
    by_key, past = dict[int, Record](), list[int]()
    for key, memory_id, kind, scope, file, data, text, is_past, uses, last, score, *numbers in rows:
        session, path, away = _place(scope, file)
        record = by_key[key] = Record(memory_id, type_of(kind), session, data, text)
        record.score, record.priority_now = round(score, 4), round(numbers[0], 4)
        record.file, record.marks = path, away
        record.uses_now = uses
        record.used_now = last
        if is_past:
            past.append(key)
            record.holds = False
        if want.explain:
            record.explanation = _explained(score, None, *numbers)
    for key, ended in marks(view.index, past).items():
        by_key[key].marks += ended
    return by_key


@lru_cache(4096)  # called for each record of an answer
def _place(scope: str, file: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the session of a memory, the path of its file, and a mark if that is a bundle."""
    away = (ARCHIVED if file == ARCHIVE else EVICTED,) if is_archived(scope) else ()
    return session_of(scope), f"{directory_of(scope)}/{file}", away


def _parts(columns: Columns) -> str:
    """Return the numbers of a memory that a score is made of, in the order of `_explained`."""
    others = f"m.importance, {columns.recency}, {columns.state}, {columns.holds}"
    return f"{columns.priority} AS priority, {others}"


def _explained(*numbers: float | None) -> dict[str, float]:
    """Return the numbers that a score is made of by their names."""
    names = ("score", "match", "priority", "importance", "use", "state", "holds")
    named = zip(names, numbers, strict=True)
    return {name: round(one, 4) for name, one in named if one is not None}


def of_keys(keys: Sequence[int]) -> Wanted:
    """Return the wish for just these memories, in the order of their keys."""
    these = Sql("m.key IN (SELECT value FROM json_each(?))", (json.dumps(keys),))
    return Wanted((these,), order="m.key", has_keys=True)


def _matching(view: View, want: Wanted, terms: Words, around: bool) -> _Matches:
    """Return the memories that match, in their order: the text leads.

    Priority, importance and use can change the order of the best by text alone, which are the same
    for every page; the rest follows by its text.
    """
    if not (terms.match or terms.asked or terms.meant):
        return {}
    joined, columns = source(view, by_key=True)
    tables, test = _tested(view, want)
    count = None if want.end is None or want.order else max(want.end, _CANDIDATES)
    matches = strengths(view, terms, tables, test, count, around=around)
    if terms.meant:
        matches = with_meaning(view, matches, terms.meant, tables, test)
    keys = list(matches)[:count]
    weights = view.weights
    scored: list[tuple[float, Sequence[Any]]] = []
    rows = view.index.execute(
        f"SELECT m.key, {_parts(columns)} {joined}"
        f" WHERE m.key IN (SELECT value FROM json_each(?)) ORDER BY {want.order or NEWEST}",
        (json.dumps(keys),),
    )
    for row in rows:
        key, priority, importance, recency, state, still = row
        rest = weights.text + weights.time * priority
        rest += weights.importance * importance + weights.access * recency
        others = (1 - weights.influence + weights.influence * rest) * state * still
        score = matches[key] * others
        if want.min_relevance is None or score >= want.min_relevance:
            scored.append((score, row))
    if not want.order:
        late = {key: number for number, key in enumerate(keys[_CANDIDATES:], 1)}
        scored.sort(key=lambda item: (late.get(item[1][0], 0), -item[0]))
    answers: _Matches = {}
    for score, (key, *parts) in scored[want.offset : want.end]:
        shares = min(score, 1.0), min(matches[key], 1.0)
        explanation = _explained(*shares, *parts) if want.explain else None
        answers[key] = round(shares[0], 4), explanation
    return answers


def _tested(view: View, want: Wanted) -> tuple[str, Sql]:
    """Return the tables and the test of the memories that are wanted; no table without a test."""
    pages = Wanted(
        order=want.order, limit=want.limit, offset=want.offset, with_total=want.with_total
    )
    is_part = len(view.scopes) != 1 and not view.has_all
    if want == pages and not is_part:
        return "", Sql("1")
    condition, given = where(view, want._replace(has_keys=True))
    if want.min_priority is None:
        return "memories m", Sql(condition, tuple(given))
    joined, columns = source(view, by_key=True)
    condition += f" AND {columns.priority} >= {float(want.min_priority)}"
    return joined.removeprefix("FROM "), Sql(condition, tuple(given))


def where(view: View, want: Wanted) -> tuple[str, list[Any]]:
    """Return the condition of the wanted memories, with its parameters."""
    # A plus hides the scope from SQLite: it goes by the keys, which are few, or from the latest.
    is_latest = len(view.scopes) > 1 and want.limit is not None
    is_latest = is_latest and (want.order or "").startswith("m.at DESC")
    aside = want.tags or want.has_keys or is_latest
    is_any = aside and len(view.scopes) > 1 and view.has_all
    scope = Sql("1") if is_any else view.within("+m.scope" if aside else "m.scope")
    conditions = [scope, *want.conditions]
    for some in want.tags:
        conditions.append(_tagged(view, some, exact=want.exact_tags).wrapped("m.key IN ({})"))
    if want.without_tags:
        named = _tagged(view, want.without_tags, exact=want.exact_tags)
        conditions.append(named.wrapped("m.key NOT IN ({})"))
    each = [Sql(f"({condition.text})", condition.parameters) for condition in conditions]
    whole = Sql.joined(" AND ", each)
    return whole.text, list(whole.parameters)


def _tagged(view: View, names: Sequence[str], *, exact: bool) -> Sql:
    """Return a query for the memories with one of these tags, or with one below it."""
    scopes = view.within("scope")
    select = f"SELECT memory FROM topics WHERE {scopes.text} AND how = {TAG} AND topic"
    each: list[Sql] = []
    for name in map(str.lower, names):
        each.append(Sql(f"{select} = ?", (*scopes.parameters, name)))
        if not exact:
            # The slash follows the dot in the order of characters.
            below = (*scopes.parameters, f"{name}.", f"{name}/")
            each.append(Sql(f"{select} >= ? AND topic < ?", below))
    return Sql.joined(" UNION ALL ", each) if each else Sql("SELECT NULL WHERE 0")
