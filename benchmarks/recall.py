"""How often `session.search` finds the right answer: `python -m benchmarks.recall DIRECTORY…`

Each directory is a conversation with its questions, as JSON lines:

    documents.jsonl   {"id": "D1:3", "text": "…", "speaker": "Ann", "timestamp": "2023-05-08T13:56:00"}   in the order of speaking
    questions.jsonl   {"question": "When did Ann …?", "answers": ["D1:3"]}

Only `id`, `text`, `question` and `answers` are needed; `--documents` and `--questions` name two files instead of directories. Every
document becomes a turn of a session of its own conversation, written and asked as any client would. Printed are the share of the
right answers among the first 5 and 10 (recall@5, recall@10), how often at least one is among the first 10 (hit@10), and the mean
reciprocal rank of the first right one (MRR).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smp_client import Memory, Session

DEPTH = 50  # answers that are looked through for the reciprocal rank


@dataclass
class Tally:
    recall_5: list[float] = field(default_factory=list)
    recall_10: list[float] = field(default_factory=list)
    hit_10: list[float] = field(default_factory=list)
    reciprocal: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, found: Sequence[str], right: set[str], seconds: float) -> None:
        self.recall_5.append(len(right & set(found[:5])) / len(right))
        self.recall_10.append(len(right & set(found[:10])) / len(right))
        self.hit_10.append(float(bool(right & set(found[:10]))))
        self.reciprocal.append(next((1 / rank for rank, one in enumerate(found, 1) if one in right), 0.0))
        self.seconds += seconds

    def merge(self, other: Tally) -> None:
        for name in ("recall_5", "recall_10", "hit_10", "reciprocal"):
            getattr(self, name).extend(getattr(other, name))
        self.seconds += other.seconds

    def figures(self) -> dict[str, float]:
        count = len(self.recall_5) or 1
        return {
            "questions": len(self.recall_5),
            **{name: round(sum(values) / count, 4) for name, values in (
                ("recall@5", self.recall_5), ("recall@10", self.recall_10), ("hit@10", self.hit_10), ("MRR", self.reciprocal))},
            "ms per search": round(1000 * self.seconds / count, 2),
        }  # fmt: skip


def lines(path: Path, *needed: str) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} cannot be read: {error}. --help says what must be in it.") from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found = json.loads(line)
            except ValueError as error:
                raise SystemExit(f"{path}:{number}: {error}") from error
            if not isinstance(found, dict) or any(name not in found for name in needed):
                raise SystemExit(f"{path}:{number}: it must be a mapping with {' and '.join(needed)}")
            yield found


def fill(session: Session, documents: Path) -> dict[str, str]:
    """Writes the documents as turns; gives back the id of each by the id of its turn."""
    ids: dict[str, str] = {}
    with session.transaction() as transaction:
        for document in lines(documents, "id", "text"):
            stamp = document.get("timestamp") or None
            turn = transaction.add_turn(str(document.get("speaker") or "user"), str(document["text"]), timestamp=stamp)
            ids[turn.id] = str(document["id"])
    return ids


def measure(memory: Memory, name: str, documents: Path, questions: Path) -> Tally:
    session = memory.create_session(id=name, quota_bytes=1 << 30)
    ids = fill(session, documents)
    session.search("warm", limit=1)
    tally = Tally()
    for question in lines(questions, "question", "answers"):
        right = {str(one) for one in question["answers"]} & set(ids.values())
        if right:
            begun = time.perf_counter()
            answer = session.search(str(question["question"]), limit=DEPTH, count_access=False)
            tally.add([ids[record.id] for record in answer], right, time.perf_counter() - begun)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recall", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directories", nargs="*", type=Path, help="each with documents.jsonl and questions.jsonl")
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    sets = [(one.name, one / "documents.jsonl", one / "questions.jsonl") for one in given.directories]
    if given.documents and given.questions:
        sets.append((given.documents.stem, given.documents, given.questions))
    if not sets:
        parser.error("name a directory, or --documents and --questions")
    total, each = Tally(), {}
    with tempfile.TemporaryDirectory() as directory:
        for number, (name, documents, questions) in enumerate(sets):
            # In a root of its own: what others have said is nothing to it.
            tally = measure(Memory(Path(directory, str(number))), f"conversation-{number}", documents, questions)
            each[name] = tally.figures()
            total.merge(tally)
    if given.json:
        print(json.dumps({"all": total.figures(), "each": each}, indent=1))
        return
    for name, figures in [*each.items(), ("all", total.figures())]:
        print(f"{name:<16}" + "".join(f"{figure:>12} {title}" for title, figure in figures.items()))


if __name__ == "__main__":
    main()
