"""How often a search finds the right memory: `python -m benchmarks.recall [DIRECTORY…]`

Without a directory, five kinds of text are asked. Chats, meetings and logs of code agents are made
by a seeded generator, because no public ones come with Python: an answer seldom has the words of
its question, the turns around it do, and others say nearly the same of somebody else. The decision
records are real: the chapters of Python's own language reference, looked up by their titles. As
documents they are turns without a title.
Each kind has a part to tune the ranking on and a part to report, made of other words.

A directory holds one conversation and its questions, as JSON lines:

    documents.jsonl   {"id": "D1:3", "text": "…", "speaker": "Ann", "timestamp": "…"}   in order
    questions.jsonl   {"question": "When did Ann …?", "answers": ["D1:3"]}

Without these files, its pages (.txt, .rst, .md) are looked up by their titles.

Beside SMP stands plain FTS5 in the same run: BM25 with porter, the same stop words, any word.
hit@10 is how often a right memory is among the first ten, MRR the mean of 1 / its place.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import yaml

from smp_client import Memory
from smp_client.ask.text import words
from smp_client.index.database import Index
from smp_client.index.meaning import make
from smp_client.index.take_in import rebuild
from smp_client.model.layout import INDEX_FILE

DEPTH = 50  # answers that are looked through for the mean reciprocal rank
BEGIN = datetime(2025, 1, 6, 9, tzinfo=UTC)
NOW = datetime(2025, 12, 1, tzinfo=UTC)
PARTS = ("tune", "report")


class Document(NamedTuple):
    speaker: str
    text: str
    title: str = ""  # of a decision; without one it is a turn


class Sample(NamedTuple):
    """Memories in their order, and questions with the places of their answers."""

    documents: list[Document]
    questions: list[tuple[str, set[int]]]


SAID: dict[str, Any] = yaml.safe_load((Path(__file__).with_suffix(".yaml")).read_text("utf-8"))


def name(draw: random.Random) -> str:
    return "".join(draw.sample(SAID["syllables"], 2)).capitalize()


def talk(
    draw: random.Random, people: Sequence[str], matters: Sequence[str], padded: bool
) -> Sample:
    """Return a talk in which every matter comes up with several people and aspects."""
    sample = Sample([], [])
    small_talk = SAID["small_talk"]
    facts = [
        (who, matter, said) for who in people for matter in matters for said in SAID["aspects"]
    ]
    for who, matter, (lead, answer, question) in draw.sample(facts, 90):
        spoken, asked = matter.split("|")
        fill = {
            "m": spoken, "q": asked if draw.random() < 0.3 else spoken, "p": who, "w": name(draw),
            "n": draw.randint(2, 40), "it": f"the {spoken}" if draw.random() < 0.4 else "it",
        }  # fmt: skip
        padding = " ".join(draw.sample(small_talk, 4)) if padded else ""
        other = draw.choice([person for person in people if person != who])
        sample.documents.append(Document(other, f"{padding} {lead.format(**fill)}"))
        sample.questions.append((question.format(**fill), {len(sample.documents)}))
        sample.documents.append(Document(who, f"{answer.format(**fill)} {padding}"))
        for _ in range(draw.randint(1, 4)):
            # Small talk names matters, too.
            named = f" As for the {draw.choice(matters).split('|')[0]}, later."
            said = draw.choice(small_talk) + (named if draw.random() < 0.3 else "")
            sample.documents.append(Document(draw.choice(people), said))
    return sample


def chats(part: str, seed: int) -> Sample:
    draw = random.Random(f"chat {part} {seed}")
    return talk(draw, draw.sample(SAID["people"], 2), SAID["matters"][part], padded=False)


def meetings(part: str, seed: int) -> Sample:
    draw = random.Random(f"meeting {part} {seed}")
    return talk(draw, draw.sample(SAID["people"], 5), SAID["tasks"][part], padded=True)


def logs(part: str, seed: int) -> Sample:
    """Return what a code agent wrote: a task, tool output with paths and errors, and its reason."""
    draw = random.Random(f"log {part} {seed}")
    sample = Sample([], [])
    for number in range(100, 220):
        task, other = draw.choice(SAID["tasks"][part]).split("|")
        file = f"{name(draw).lower()}/{name(draw).lower()}.py"
        error = draw.choice(SAID["errors"])
        trace = [
            f"{name(draw).lower()}.py:{draw.randint(1, 500)}" for _ in range(draw.randint(2, 60))
        ]
        first, asked = len(sample.documents), other if draw.random() < 0.3 else task
        said = {
            "user": f"The tests of the {task} fail again, please look. Ticket OPS-{number}.",
            "tool": f"FAILED {error} at {file}:{draw.randint(3, 900)} {' '.join(trace)}",
            "agent": f"Found it: {draw.choice(SAID['causes'])}. I changed {file} and ran all.",
            "shell": f"{draw.randint(20, 900)} passed in {draw.randint(1, 90)} s",
        }
        sample.documents.extend(Document(who, text) for who, text in said.items())
        cause = f"What was the cause of the {error} in {file}?"
        why = f"Why did the tests of the {asked} fail in OPS-{number}?"
        sample.questions.extend([(cause, {first + 2}), (why, {first, first + 2})])
    return sample


def records(part: str, seed: int) -> Sample:
    """Return long documents with titles: real text, the same in each round but for its order."""
    sample = Sample([], [])
    halves = sorted(topics)[PARTS.index(part) :: 2]
    random.Random(seed).shuffle(halves)
    for topic in halves:
        # Each chapter with a title of its own is a record.
        parts = re.split(r"(?:^|\n)([^\n]{4,70})\n[*=~-]{4,}\n", topics[topic])
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            if len(body) > 400:
                sample.questions.append((title, {len(sample.documents)}))
                sample.documents.append(Document("architect", body, title if seed % 2 else topic))
    return sample


def documents(part: str, seed: int) -> Sample:
    """Return the same text as turns that do not say their titles, beside others of other matters."""
    sample = records(part, seed)
    return sample._replace(documents=[one._replace(title="") for one in sample.documents])


KINDS: dict[str, Callable[[str, int], Sample]] = {
    "chats": chats, "meetings": meetings, "decision records": records, "documents": documents,
    "agent logs": logs,
}  # fmt: skip


def manual(directory: Path) -> Sample:
    """Return the pages of a manual as turns that do not say their titles, looked up by these."""
    sample = Sample([], [])
    for file in sorted(one for one in directory.rglob("*.*") if one.suffix in (".txt", ".rst", ".md")):
        text = file.read_text(encoding="utf-8", errors="replace")
        title = re.search(r"(?:^|\n)(?:# ([^\n]{4,90})|([^\n=]{4,90})\n=+)\n", text)
        if title and len(text) - title.end() > 800:
            sample.questions.append((title[1] or title[2], {len(sample.documents)}))
            sample.documents.append(Document("architect", text[title.end() :]))
    random.Random(0).shuffle(order := list(range(len(sample.documents))))
    moved = {old: new for new, old in enumerate(order)}
    questions = [(title, {moved[place] for place in right}) for title, right in sample.questions]
    return Sample([sample.documents[old] for old in order], questions)


def read(directory: Path) -> Sample:
    if not (directory / "documents.jsonl").exists():
        return manual(directory)

    def lines(name: str) -> Iterator[dict[str, Any]]:
        text = (directory / name).read_text(encoding="utf-8")
        return (json.loads(line) for line in text.splitlines() if line.strip())

    said = list(lines("documents.jsonl"))
    places = {str(one["id"]): place for place, one in enumerate(said)}
    documents = [Document(str(one.get("speaker") or "user"), str(one["text"])) for one in said]
    asked = [(str(one["question"]), {places[str(a)] for a in one["answers"] if str(a) in places})
             for one in lines("questions.jsonl")]  # fmt: skip
    return Sample(documents, [one for one in asked if one[1]])


def with_vectors(memory: Memory) -> None:
    """Do as a daemon does where the extra `semantic` is installed."""
    with closing(Index.open(memory.root / INDEX_FILE)) as index:
        rebuild(memory, index)
        while make(index, 1000):
            pass


def by_smp(sample: Sample, root: Path, meaning: bool) -> Callable[[str], list[int]]:
    memory = Memory(root, clock=lambda: NOW, count_access=False)
    session = memory.create_session(id="s", quota_bytes=1 << 30)
    ids: dict[str, int] = {}
    every = (NOW - BEGIN) / (len(sample.documents) + 1)
    with session.transaction() as tx:
        for place, (speaker, text, title) in enumerate(sample.documents):
            at = BEGIN + place * timedelta(seconds=int(every.total_seconds()))
            if title:
                made = tx.record_decision(title, made_by=speaker, rationale=text, timestamp=at)
            else:
                made = tx.add_turn(speaker, text, timestamp=at)
            ids[made.id] = place
    if meaning:
        with_vectors(memory)
    return lambda question: [ids[record.id] for record in session.search(question, limit=DEPTH)]


def by_fts5(sample: Sample) -> Callable[[str], list[int]]:
    table = sqlite3.connect(":memory:")
    table.execute("CREATE VIRTUAL TABLE said USING fts5 (text, tokenize='porter unicode61')")
    texts = (
        (place, f"{one.speaker} {one.title} {one.text}")
        for place, one in enumerate(sample.documents)
    )
    table.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", texts)
    asked = f"SELECT rowid FROM said WHERE said MATCH ? ORDER BY bm25(said) LIMIT {DEPTH}"

    def search(question: str) -> list[int]:
        match = " OR ".join(f'"{word}"' for word in words(question))
        return [place for (place,) in table.execute(asked, (match,))] if match else []

    return search


def figures(
    searches: Sequence[tuple[Callable[[str], list[int]], Sample]],
) -> tuple[int, float, float]:
    """Return the number of questions, hit@10 and MRR."""
    ranks: list[int] = []
    for search, sample in searches:
        for question, right in sample.questions:
            found = search(question)
            ranks.append(next((place for place, one in enumerate(found, 1) if one in right), 0))
    count = len(ranks) or 1
    return (
        len(ranks),
        sum(0 < rank <= 10 for rank in ranks) / count,
        sum(1 / rank for rank in ranks if rank) / count,
    )


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("benchmarks.recall", description=__doc__, formatter_class=form)
    parser.add_argument(
        "directories", nargs="*", type=Path, help="conversations with questions, or manuals"
    )
    parser.add_argument("--part", choices=PARTS, help="only this part")
    parser.add_argument("--rounds", type=int, default=4, help="samples of each kind (%(default)s)")
    parser.add_argument("--meaning", action="store_true", help="by meaning too: the extra semantic")
    given = parser.parse_args()
    sets = {str(one): [read(one)] for one in given.directories}
    if not sets:
        parts = [part for part in PARTS if given.part in (None, part)]
        sets = {
            f"{kind}, {part}": [make(part, seed) for seed in range(given.rounds)]
            for part in parts
            for kind, make in KINDS.items()
        }
    print(f"{'text':<28}{'questions':>10}{'hit@10':>9}{'FTS5':>9}{'MRR':>9}{'FTS5':>9}")
    for title, samples in sets.items():
        with tempfile.TemporaryDirectory() as directory:
            ours = figures(
                [(by_smp(one, Path(directory, str(n)), given.meaning), one) for n, one in enumerate(samples)]
            )
        bare = figures([(by_fts5(one), one) for one in samples])
        shown = (ours[1], bare[1], ours[2], bare[2])
        print(f"{title:<28}{ours[0]:>10}" + "".join(f"{one:>9.3f}" for one in shown), flush=True)


if __name__ == "__main__":
    main()
