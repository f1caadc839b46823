"""What it costs to ask: with a true index, in a new process, right after a write, and without any index.

Each question stands beside the SQLite statement that reads the rows of its answer by their keys, from the same file in the same
run: less than that no answer can cost that is read from there.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from smp_client import Memory, Record, Session
from smp_client.ask.summary import Summary
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild
from smp_client.model.layout import INDEX_FILE
from smp_client.model.record import (
    DECISION,
    FINDING,
    PREFERENCE,
    RELATIONSHIP,
    SESSION_KINDS,
    TURN,
    Kind,
)
from smp_client.model.times import now, render_time
from smp_client.text.contents import new_fields
from smp_client.text.format import format_of

from .measure import Bench, Operation, Row, Target, Timing, benchmark
from .processes import CHECKOUT, compiled_environment
from .samples import QUOTA_BYTES, file_of, new_session

SIZES = (1_000, 10_000)
SESSIONS, IN_EACH = 100, 1_000
DIFFERENT = 10  # sessions of one size; the others hold the same as one of these
END = now().replace(microsecond=0)
EVERY = timedelta(minutes=1)

# Of twenty memories so many are of each kind; ids of the kinds grow by these.
MIX = {TURN: 12, DECISION: 3, FINDING: 3, PREFERENCE: 1, RELATIONSHIP: 1}
PEOPLE = ("user", "architect", "veritas", "developer", "reviewer")
TOPICS = (
    "gateway", "token", "login", "billing", "cache", "refresh", "invoice", "queue", "password", "deploy", "schema", "latency",
    "backup", "consent", "export", "search", "mobile", "tenant", "quota", "webhook", "audit", "rollout", "locale", "report",
    "upload",
)  # fmt: skip
COMMON = """
    the of and to in a is that it was for on are as with be at by this had not but from have or an they which you were all her she
    there would their we him been has when who will no more if out so up what its about than into them can only other some could
    these may then do any my
""".split()  # noqa: SIM905 - a text is easier to look through than 60 strings
QUESTION = "What did the architect decide about the refresh of a password when the tenant has a webhook?"


@dataclass(frozen=True)
class Question:
    """A method of a session, or of a memory, with what it is given."""

    name: str
    method: str
    given: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    target_s: float | None = None  # of a session alone in its tree
    of_all_s: float | None = None  # of all sessions, and of one among them: its relationships may stand in any

    def target(self, asked: Session | Memory) -> Target | None:
        wanted = self.target_s if isinstance(asked, Session) and len(asked.memory.sessions()) == 1 else self.of_all_s
        return Target(seconds=wanted) if wanted else None

    def of(self, asked: Session | Memory) -> Operation:
        return partial(getattr(asked, self.method), *self.given, **self.options)

    def program(self, asked: Session | Memory) -> str:
        """The same for a process of its own."""
        session = f".session({asked.id!r})" if isinstance(asked, Session) else ""
        ask = f"getattr(memory{session}, {self.method!r})(*{self.given!r}, **{dict(self.options)!r})"
        return f"from smp_client import Memory; memory = Memory({str(_root(asked))!r}); {ask}"


WORD = Question("search, one word", "search", ("refresh",), {}, 0.002, 0.008)
ASKED = Question("search, a question", "search", (QUESTION,), {}, 0.005, 0.02)
GET = Question("get", "get", ("DEC-020",), target_s=0.0005)
TOPIC = Question("by_topic, all", "by_topic", ("upload",), target_s=0.0015)
FIRST_OF_TOPIC = Question("by_topic, limit=20", "by_topic", ("cache",), {"limit": 20}, 0.0015)
COMPLEX = Question(
    "query, filters and related", "query",
    ({
        "filters": [
            {"field": "type", "operator": "in", "value": ["decision", "finding"]},
            {"field": "tags", "operator": "in", "value": ["token", "billing"]},
            {"field": "timestamp", "operator": "greaterThan", "value": render_time(END - 700 * EVERY)},
            {"field": "confidence", "operator": "equals", "value": "high"},
        ],
        "sort": [{"field": "priority", "direction": "desc"}], "limit": 20, "include_related": True,
    },),
    target_s=0.004,
)  # fmt: skip
QUESTIONS = (
    GET, TOPIC, FIRST_OF_TOPIC,
    Question("by_time, 50 minutes", "by_time", (render_time(END - 100 * EVERY), render_time(END - 51 * EVERY)), target_s=0.0015),
    Question("by_type, limit=20", "by_type", ("decision",), {"limit": 20}),
    Question("by_type, all", "by_type", ("decision",)),
    Question("by_agent, limit=20", "by_agent", ("veritas",), {"limit": 20}),
    WORD, ASKED, COMPLEX,
    Question("similar", "similar", ("DEC-020",)),
    Question("related, depth=2", "related", ("DEC-020",), {"depth": 2}),
    Question("topics", "topics", target_s=0.015),
    Question("summary", "summary", target_s=0.015),
    Question("context, 4,000 tokens", "context", (), {"topic": "billing", "max_tokens": 4_000}, 0.012),
)  # fmt: skip
OF_ALL = (WORD, ASKED, FIRST_OF_TOPIC, COMPLEX)


@benchmark("warm")
def warm(bench: Bench) -> Iterator[Row]:
    for size, asked, questions in _asked(bench):
        for question in questions:
            yield _warm(bench, size, question, asked)


@benchmark("a thousand sessions")
def thousand(bench: Bench) -> Iterator[Row]:
    """Of a hundred memories each: every question looks whether a file of any session has changed."""
    memory, count = Memory(_root(new_session(bench.directory))), bench.rounds(1_000)
    for number in range(count):
        fill_session(memory.create_session(quota_bytes=QUOTA_BYTES), 100, number % DIFFERENT)
    _with_index(memory.sessions()[0])
    yield _warm(bench, f"all of {count:,} sessions", replace(WORD, of_all_s=0.04), memory)


def _warm(bench: Bench, size: str, question: Question, asked: Session | Memory) -> Row:
    ours = question.of(asked)
    rows = _keys(asked, ours())
    with _reader(asked) as reader:
        bare = partial(_fetch, reader, _statement(rows), rows)
        times = bench.compare(ours, bare, rounds=_rounds(ours))
    return Row(question.name, size, "its rows by key", *times, question.target(asked), note=_count(question, asked, rows))


def _count(question: Question, asked: Session | Memory, rows: list[int]) -> str:
    """How many rows an answer is made of, and how many it was chosen from."""
    if "limit" not in question.options:
        return f"{len(rows)} rows"
    unlimited = replace(question, options={**question.options, "limit": None})
    return f"{len(rows)} rows of {len(_keys(asked, unlimited.of(asked)())):,}"


@benchmark("cold")
def cold(bench: Bench) -> Iterator[Row]:
    """In a new process, from its start."""
    for size, asked, questions in _asked(bench):
        for question in questions:
            rows = _keys(asked, question.of(asked)())
            ours, bare = _program(bench, question.program(asked)), _program(bench, _fetching(asked, rows), json.dumps(rows))
            yield Row(f"cold: {question.name}", size, "the same with sqlite3", *bench.compare(ours, bare, rounds=6),
                      note=f"{len(rows)} rows")  # fmt: skip


@benchmark("behind")
def behind(bench: Bench) -> Iterator[Row]:
    """Each right after a turn was added, which no daemon takes in."""
    for memories in _sizes(bench):
        session = _with_index(_filled(bench, memories))
        for question in QUESTIONS:
            ours = question.of(session)
            rows = _keys(session, ours())
            with _reader(session) as reader:
                bare = partial(_fetch, reader, _statement(rows), rows)
                times = _compare_after(bench, partial(session.add_turn, "user", QUESTION), ours, bare, rounds=20)
            yield Row(f"behind: {question.name}", f"{memories:,}", "its rows by key", *times, question.target(session))


@benchmark("no index")
def no_index(bench: Bench) -> Iterator[Row]:
    """The first question of a new process, which has to make the index of what it asks about."""
    for size, asked, _ in _asked(bench):
        if isinstance(asked, Memory):
            yield _first(bench, ASKED, size, asked, rounds=1)
        else:
            yield from (_first(bench, question, size, asked, rounds=3) for question in (GET, TOPIC, ASKED))


def _first(bench: Bench, question: Question, size: str, asked: Session | Memory, rounds: int) -> Row:
    rows = _keys(asked, question.of(asked)())
    texts = [file for file in _root(asked).glob("active/*/*.*") if isinstance(asked, Memory) or file.parent.name == asked.id]
    parsing = (
        "import sys; from pathlib import Path\n"
        "from smp_client.text.format import format_of; from smp_client.model.record import SESSION_KINDS\n"
        "kinds = {kind.file: kind for kind in SESSION_KINDS}\n"
        "for file in map(Path, sys.argv[1:]):\n"
        "    if file.name in kinds: format_of(kinds[file.name]).parse(file.read_bytes())"
    )
    ours, bare = _program(bench, question.program(asked)), _program(bench, parsing, *map(str, texts))
    times = _compare_after(bench, partial(_remove_index, asked), ours, bare, rounds=rounds)
    return Row(f"no index: {question.name}", size, "parse all that was asked", *times, note=f"{len(rows)} rows")


# Trees.


def _asked(bench: Bench) -> Iterator[tuple[str, Session | Memory, tuple[Question, ...]]]:
    """Whom to ask what: sessions alone in their root, sessions among many, and the whole of those."""
    for memories in _sizes(bench):
        yield f"{memories:,}", _one(bench, memories), QUESTIONS
    many = _many(bench)
    for memories, session in zip(_sizes_among(bench), many, strict=False):
        yield f"{memories:,}, {_label(bench)}", session, QUESTIONS
    yield f"all of {_label(bench)}", Memory(_root(many[0])), OF_ALL


def _sizes(bench: Bench) -> tuple[int, ...]:
    return SIZES[:1] if bench.quick else SIZES


def _sizes_among(bench: Bench) -> list[int]:
    """How much each of many sessions holds. One of them is as large as the design says the one that is asked may be."""
    return [200] * 10 if bench.quick else [IN_EACH, SIZES[-1], *[IN_EACH] * (SESSIONS - 2)]


def _label(bench: Bench) -> str:
    return f"{len(_sizes_among(bench))} sessions"


@cache
def _one(bench: Bench, memories: int) -> Session:
    return _with_index(_filled(bench, memories))


def filled_memory(bench: Bench, memories: int) -> Memory:
    """Return a memory with one session of so many memories, and a true index."""
    return Memory(_root(_one(bench, memories)))


@cache
def _many(bench: Bench) -> list[Session]:
    """The two that are asked: a usual one and the largest."""
    first, *sizes = _sizes_among(bench)
    sessions = [_filled(bench, first)]
    memory = Memory(_root(sessions[0]))
    for number, memories in enumerate(sizes, 1):
        session = memory.create_session(user="benchmark", quota_bytes=QUOTA_BYTES)
        sessions.append(fill_session(session, memories, number % DIFFERENT))
    _with_index(sessions[0])
    return sessions[:1] if bench.quick else sessions[:2]


def _filled(bench: Bench, memories: int) -> Session:
    return fill_session(new_session(bench.directory), memories, 0)


def fill_session(session: Session, memories: int, seed: int) -> Session:
    for kind, text in _contents(memories, seed).items():
        file_of(session, kind).write_bytes(format_of(kind).empty(session.id, END, []) + text)
    return session


def _with_index(session: Session) -> Session:
    index = Index.open(_root(session) / INDEX_FILE)
    rebuild(Memory(_root(session)), index)
    index.close()
    return session


@cache
def _contents(memories: int, seed: int) -> dict[Kind, bytes]:
    """So many memories, one a minute until now, of texts whose words are as frequent as in a language."""
    draw = random.Random(seed)
    words, frequencies = vocabulary()
    order = [kind for kind, share in MIX.items() for _ in range(share)]
    counts = dict.fromkeys(MIX, 0)
    texts: dict[Kind, list[bytes]] = {kind: [] for kind in SESSION_KINDS if kind in MIX}
    for number in range(memories):
        kind = order[number * 7 % len(order)]
        counts[kind] += 1
        say = partial(draw.choices, words, cum_weights=frequencies)
        fields = new_fields(kind, _fields(kind, draw, counts, say), END - (memories - number) * EVERY)
        numbered = {"turn": counts[kind]} if kind is TURN else {}
        texts[kind].append(format_of(kind).render({"id": kind.memory_id(counts[kind]), **numbered, **fields}, 2))
    return {kind: b"".join(parts) for kind, parts in texts.items()}


def _fields(kind: Kind, draw: random.Random, counts: dict[Kind, int], say: Callable[..., list[str]]) -> dict[str, Any]:
    who = draw.choice(PEOPLE)
    if kind is RELATIONSHIP:
        source, target = DECISION.memory_id(draw.randint(1, counts[DECISION])), FINDING.memory_id(draw.randint(1, counts[FINDING]))
        return {"source": source, "target": target, "relationship": "resolves", "created_by": who}
    text = f"{' '.join(say(k=25 if kind is TURN else 12)).capitalize()}."
    if kind is TURN:
        refers = {"memory_refs": [DECISION.memory_id(counts[DECISION])]} if counts[TURN] % 10 == 0 and counts[DECISION] else {}
        return {"speaker": who, "type": "message", "content": text, **refers}
    ranked = [1 / rank for rank in range(1, len(TOPICS) + 1)]
    common = {kind.text: text, kind.actor: who, "tags": sorted(set(draw.choices(TOPICS, ranked, k=2))), "turn_ref": counts[TURN]}
    if kind is DECISION:
        return {**common, "rationale": " ".join(say(k=20)), "confidence": draw.choice(("high", "medium"))}
    if kind is FINDING:
        return {**common, "severity": draw.choice(("critical", "important", "minor")), "confidence": "high"}
    return {**common, "topic": draw.choice(TOPICS), "confidence": draw.choice(("explicit", "inferred"))}


@cache
def vocabulary() -> tuple[list[str], list[float]]:
    """3,000 words, and how often they and all before them are said: the n-th a n-th part as often as the first, and the first are
    those that say nothing."""
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprst", "aeiou")]
    made = ["".join(parts) for parts in itertools.product(syllables, syllables)][:3_000]
    random.Random(0).shuffle(made)
    made[: len(COMMON)] = COMMON
    for rank, topic in enumerate(TOPICS):
        made[len(COMMON) + 15 * rank] = topic
    return made, list(itertools.accumulate(1 / rank for rank in range(1, len(made) + 1)))


# Rows and times.


def _keys(asked: Session | Memory, answer: object) -> list[int]:
    """Of the memories that an answer is made of."""
    named = "SELECT key FROM memories WHERE scope = ? AND id = ?"
    with _reader(asked) as reader:
        return [key for each in dict.fromkeys(_named(asked, answer)) for (key,) in reader.execute(named, each)]


def _named(asked: Session | Memory, answer: object) -> Iterable[tuple[str, str]]:
    if isinstance(answer, Record):
        return [(answer.session, answer.id)]
    if isinstance(answer, Summary):
        return _named(asked, [*answer.decisions, *answer.open_findings, *answer.preferences])
    session = asked.id if isinstance(asked, Session) else ""
    if isinstance(answer, str):
        return [(session, memory_id) for memory_id in re.findall(r"\b[A-Za-z]+-\d+\b", answer)]
    if not isinstance(answer, list):
        raise TypeError(f"no answer that is known: {answer!r}")
    listed = [record for record in (*answer, *getattr(answer, "related", ())) if isinstance(record, Record)]
    # What is no record is a topic.
    ids = [memory_id for topic in answer if not isinstance(topic, Record) for ids in topic.related.values() for memory_id in ids]
    return [*((record.session, record.id) for record in listed), *((session, memory_id) for memory_id in ids)]


@contextmanager
def _reader(asked: Session | Memory) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(_index_uri(asked), uri=True, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _statement(keys: list[int]) -> str:
    return f"SELECT key, id, type, scope, data, text FROM memories WHERE key IN ({', '.join('?' * len(keys))})"


def _fetch(connection: sqlite3.Connection, statement: str, keys: list[int]) -> object:
    return connection.execute(statement, keys).fetchall()


def _fetching(asked: Session | Memory, keys: list[int]) -> str:
    connect = f"sqlite3.connect({_index_uri(asked)!r}, uri=True)"
    return f"import json, sqlite3, sys; {connect}.execute({_statement(keys)!r}, json.loads(sys.argv[1])).fetchall()"


def _program(bench: Bench, program: str, *arguments: str) -> Operation:
    command, environment = [sys.executable, "-c", program, *arguments], compiled_environment(bench.directory)
    return partial(subprocess.run, command, cwd=CHECKOUT, env=environment, check=True)


def _compare_after(bench: Bench, before: Operation, ours: Operation, bare: Operation, *, rounds: int) -> tuple[Timing, Timing]:
    """As `Bench.compare`, with something that is not counted before each of ours."""
    times: dict[Operation, list[float]] = {ours: [], bare: []}
    for turn in range(bench.rounds(rounds) + 1 if rounds > 1 else 1):
        for operation in (ours, bare) if turn % 2 else (bare, ours):
            if operation is ours:
                before()
            started = time.perf_counter()
            operation()
            times[operation].append(time.perf_counter() - started)
    kept = [sorted(each[1:] or each) for each in times.values()]
    ours_timing, bare_timing = (Timing(statistics.median(each), each[min(len(each) * 99 // 100, len(each) - 1)]) for each in kept)
    return ours_timing, bare_timing


def _rounds(operation: Operation) -> int:
    """As many as take about two seconds."""
    started = time.perf_counter()
    operation()
    return max(5, min(int(2 / (time.perf_counter() - started)), 500))


def _root(asked: Session | Memory) -> Path:
    return asked.memory.root if isinstance(asked, Session) else asked.root


def _index_uri(asked: Session | Memory) -> str:
    return f"{(_root(asked) / INDEX_FILE).as_uri()}?mode=ro"


def _remove_index(asked: Session | Memory) -> None:
    for path in (_root(asked) / INDEX_FILE).parent.glob(f"{Path(INDEX_FILE).name}*"):
        path.unlink()
