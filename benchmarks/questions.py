"""How many everyday questions find the right memory: `python -m benchmarks.questions`

Each project of `benchmarks/` (see `benchmarks/projects.py`) has sixty questions, each with the memory that
answers it: twenty in the memory's own words (same), twenty inflected or with everyday synonyms (forms), and
twenty that share no content word with it (other). The ferry line has thirty more, of all sorts (thirty).
They were written before the ranking was changed and must not be fitted to it afterwards.

Every question goes to `Memory.search`, over all sessions, as a client would ask it a week after the last
session; with --mcp it goes to `memory_search` of a server, which is a process with the clock of today.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.agents import OURS, Connection
from benchmarks.measure import Bench
from benchmarks.projects import Project, Question, projects
from benchmarks.recall import with_vectors
from smp_client import Memory

DEPTH = 10
GROUPS = ("same", "forms", "other", "thirty")
Search = Callable[[str], list[str]]


@dataclass(frozen=True)
class Answer:
    """The place of a question's right memory among the hits, 0 if it is not among the first ten."""

    project: str
    group: str
    question: str
    right: str
    place: int


def main() -> None:
    given = _arguments()
    answers: list[Answer] = []
    for project in projects():
        if not given.only or project.name in given.only:
            answers += ask_all(project, meaning=given.meaning, over_mcp=given.mcp)
    if given.json:
        print(json.dumps([asdict(answer) for answer in answers], indent=1))
        return
    if given.all:
        for answer in answers:
            print(f"{answer.place or '-':>3}  {answer.project}, {answer.group}: {answer.question}")
    _print(answers)


def ask_all(project: Project, *, meaning: bool = False, over_mcp: bool = False) -> list[Answer]:
    """Build the project and ask all of its questions."""
    asked = [(question.how, question) for question in project.grouped_questions]
    asked += [("thirty", question) for question in ungrouped(project)]
    with tempfile.TemporaryDirectory() as directory:
        memory = project.build(Path(directory) / "sessions")
        if meaning:
            with_vectors(memory)
        with _server(memory, Path(directory)) if over_mcp else _library(memory) as search:
            return [
                Answer(project.name, group, question.text, question.right, place(project, question, search))
                for group, question in asked
            ]


def ungrouped(project: Project) -> list[Question]:
    """Return the questions of `questions.yaml` that do not say how they share words."""
    return [question for question in project.questions("questions.yaml") if not question.how]


def place(project: Project, question: Question, search: Search) -> int:
    """Return the place of the right memory among the first ten hits; 0 if it is not among them."""
    found = [project.full_name(name) for name in search(question.text)]
    return found.index(question.right) + 1 if question.right in found else 0


@contextmanager
def _library(memory: Memory) -> Iterator[Search]:
    yield by_library(memory)


def by_library(memory: Memory) -> Search:
    """Return a function that searches all sessions of the tree."""
    return lambda text: [
        f"{record.session}/{record.id}" for record in memory.search(text, limit=DEPTH)
    ]


@contextmanager
def _server(memory: Memory, directory: Path) -> Iterator[Search]:
    """Yield a function that asks a server of its own over the pipes."""
    memory.close()
    connection = Connection(Bench(directory, quick=True), [*OURS, "--root", str(memory.root)], directory)

    def search(text: str) -> list[str]:
        said = connection.call("memory_search", {"query": text, "limit": DEPTH, "project": "*"})
        return [str(hit["id"]) for hit in said["result"]["structuredContent"]["hits"]]

    try:
        yield search
    finally:
        connection.end()


def _print(answers: Sequence[Answer]) -> None:
    print(f"{'project':<12}{'group':<8}{'questions':>10}{'first':>7}{'in three':>10}{'in ten':>8}")
    names = sorted({answer.project for answer in answers})
    for name in [*names, "all"] if len(names) > 1 else names:
        of_project = [answer for answer in answers if name in (answer.project, "all")]
        for group in GROUPS:
            places = [answer.place for answer in of_project if answer.group == group]
            if places and (group, name) != ("thirty", "all"):
                first, three, ten = (_within(places, last) for last in (1, 3, 10))
                print(f"{name:<12}{group:<8}{len(places):>10}{first:>7}{three:>10}{ten:>8}")


def _within(places: Sequence[int], last: int) -> int:
    return sum(0 < place <= last for place in places)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.questions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", metavar="PROJECT", help="only this project")
    parser.add_argument("--all", action="store_true", help="print every question with the place of its answer")
    parser.add_argument("--json", action="store_true", help="print the place of every answer as JSON, 0 for not found")
    parser.add_argument("--meaning", action="store_true", help="by meaning too: the extra semantic")
    parser.add_argument("--mcp", action="store_true", help="ask over the MCP server: the extra mcp")
    return parser.parse_args()


if __name__ == "__main__":
    main()
