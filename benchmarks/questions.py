"""How many everyday questions find the right memory: `python -m benchmarks.questions [--all] [--json]`

`benchmarks/ferry/` tells of a made-up project, the ticket shop of a ferry line: 150 memories in 8 sessions over four months, with
decisions that were replaced, findings that were resolved, and others that sound alike. `questions.yaml` has thirty questions, each
with the memory that answers it. They were written before the ranking was changed and must not be fitted to it afterwards.

Every question goes to `Memory.search`, over all sessions, as a client would ask it a week after the last session.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from benchmarks.recall import with_vectors
from smp_client import Memory, Session
from smp_client.model.record import RELATIONSHIP, SESSION_KINDS, Kind
from smp_client.model.times import parse_time

DATA = Path(__file__).parent / "ferry"
ASKED_AT = datetime(2026, 5, 4, 9, tzinfo=UTC)
EVERY = timedelta(minutes=4)  # between two memories of a session
DEPTH = 10
_KINDS = {"turn" if kind.prefix == "turn" else kind.name: kind for kind in SESSION_KINDS}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.questions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="print every question with the place of its answer")
    parser.add_argument("--json", action="store_true", help="print the place of every answer as JSON, 0 for not found")
    parser.add_argument("--meaning", action="store_true", help="by meaning too: the extra semantic")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        memory = build(Path(directory) / "sessions")
        if given.meaning:
            with_vectors(memory)
        places = ranks(memory)
    if given.json:
        print(json.dumps(places, indent=1))
        return
    for question, place in places.items() if given.all else ():
        print(f"{place or '-':>3}  {question}")
    first, three, ten = (sum(0 < place <= last for place in places.values()) for last in (1, 3, 10))
    print(f"{len(places)} questions: the right memory is first in {first}, in the first three in {three}, in the first ten in {ten}")


def build(root: Path) -> Memory:
    """Return a tree with the whole project in it."""
    memory = Memory(root, clock=lambda: ASKED_AT, count_access=False)
    for file in sorted(DATA.glob("[0-9]*.yaml")):
        told = yaml.safe_load(file.read_text(encoding="utf-8"))
        session = memory.create_session(id=told["session"], project="skerry", topic=told["topic"])
        for number, fields in enumerate(told["memories"]):
            _record(session, fields, parse_time(str(told["begins"])) + number * EVERY)
    return memory


def ranks(memory: Memory) -> dict[str, int]:
    """Return the place of each question's answer, 0 where it is not among the first ten."""
    places: dict[str, int] = {}
    for question in yaml.safe_load((DATA / "questions.yaml").read_text(encoding="utf-8")):
        found = [f"{record.session}/{record.id}" for record in memory.search(question["ask"], limit=DEPTH)]
        places[question["ask"]] = found.index(question["right"]) + 1 if question["right"] in found else 0
    return places


def _record(session: Session, told: Mapping[str, Any], at: datetime) -> None:
    name = next(name for name in _KINDS if name in told)
    kind: Kind = _KINDS[name]
    further = {key: told[key] for key in told.keys() - {"id", "by", name, "supersedes", "resolved"}}
    made = session.record(kind, {kind.text: told[name], kind.actor: told["by"], **further}, at)
    if made.id != told["id"]:
        raise SystemExit(f"{session.id}: {told['id']} became {made.id}; the ids must follow the order of the file.")
    if "supersedes" in told:
        ends = {"source": made.id, "target": told["supersedes"], "relationship": "supersedes", "created_by": told["by"]}
        session.record(RELATIONSHIP, ends, at)
    if "resolved" in told:
        session.resolve_finding(made.id, resolved_by=told["by"], action_taken=told["resolved"])


if __name__ == "__main__":
    main()
