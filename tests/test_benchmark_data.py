"""The made-up projects of the benchmarks are sound: each name in them is the name of a memory.

Each project is checked without a tree of memories, so that a slip in a file is named at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PROJECTS = sorted({file.parent for file in BENCHMARKS.glob("*/[0-9]*.yaml")})
PREFIXES = {
    "turn": "turn",
    "decision": "DEC",
    "finding": "FIND",
    "preference": "PREF",
    "learning": "LEARN",
}
WORDINGS = {"same", "forms", "other"}
FUNCTION_WORDS = re.compile(
    r"\b(a|about|after|an|and|are|at|be|by|can|did|do|does|for|from|had|has|have|how|i|in|is|it|its"
    r"|may|me|must|my|no|not|of|on|one|or|our|that|the|them|there|they|this|to|was|we|were|what"
    r"|when|where|which|while|who|whom|whose|why|will|with|without|you)\b"
)

each_project = pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def sessions(project: Path) -> list[dict[str, Any]]:
    return [read(file) for file in sorted(project.glob("[0-9]*.yaml"))]


def memories(project: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each memory with the name of its session. The state of an agent is left out."""
    for session in sessions(project):
        for memory in session["memories"]:
            if "state" not in memory:
                yield session["session"], memory


def names(project: Path) -> set[str]:
    """Return the names of all memories. The state of an agent has the agent's name as its id."""
    return {
        f"{session['session']}/{memory['id']}"
        for session in sessions(project)
        for memory in session["memories"]
    }


def tasks(project: Path) -> list[dict[str, Any]]:
    file = project / "tasks.yaml"
    return list(read(file)) if file.exists() else []


def words(text: str) -> set[str]:
    """Return the words of a text that have a meaning of their own, without the s of a plural."""
    meaning = FUNCTION_WORDS.sub(" ", text.lower())
    return {word.removesuffix("s") for word in re.findall(r"\w+", meaning)}


def kind_of(memory: dict[str, Any]) -> str:
    kinds = [kind for kind in PREFIXES if kind in memory]
    assert len(kinds) == 1, f"one kind each: {memory}"
    return kinds[0]


def test_there_are_projects() -> None:
    assert {"app", "compiler", "ferry"} <= {project.name for project in PROJECTS}


@each_project
def test_files_stand_in_the_order_of_their_sessions(project: Path) -> None:
    begins = [str(session["begins"]) for session in sessions(project)]
    assert begins == sorted(begins)


@each_project
def test_ids_follow_the_order_of_the_file(project: Path) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for session, memory in memories(project):
        prefix = PREFIXES[kind_of(memory)]
        counts[session, prefix] += 1
        number = counts[session, prefix]
        expected = f"turn-{number}" if prefix == "turn" else f"{prefix}-{number:03}"
        assert memory["id"] == expected, f"in {session}"


@each_project
def test_a_superseded_memory_is_an_earlier_one_of_its_kind(project: Path) -> None:
    kinds: dict[str, str] = {}
    for session, memory in memories(project):
        if "supersedes" in memory:
            target = memory["supersedes"]
            name = target if "/" in target else f"{session}/{target}"
            assert kinds.get(name) == kind_of(memory), f"{session}/{memory['id']} → {target}"
        kinds[f"{session}/{memory['id']}"] = kind_of(memory)


@each_project
def test_only_findings_are_resolved(project: Path) -> None:
    resolved = [memory for _, memory in memories(project) if "resolved" in memory]
    assert {kind_of(memory) for memory in resolved} <= {"finding"}


@each_project
def test_no_text_stands_there_twice(project: Path) -> None:
    texts = Counter(str(memory[kind_of(memory)]) for _, memory in memories(project))
    assert [text for text, count in texts.items() if count > 1] == []


@each_project
def test_each_task_needs_memories_that_exist(project: Path) -> None:
    known = names(project)
    for task in tasks(project):
        needed = task["needed"]
        assert set(needed) <= known, task["task"]
        assert len(needed) == len(set(needed)), task["task"]
        assert 5 <= len(needed) <= 9, task["task"]


@each_project
def test_no_task_needs_a_superseded_memory(project: Path) -> None:
    ended = {
        target if "/" in target else f"{session}/{target}"
        for session, memory in memories(project)
        if (target := memory.get("supersedes"))
    }
    for task in tasks(project):
        assert ended.isdisjoint(task["needed"]), task["task"]


@each_project
def test_each_question_is_answered_by_a_memory_that_exists(project: Path) -> None:
    known = names(project)
    for file in sorted(project.glob("questions*.yaml")):
        questions = read(file)
        asked = Counter(question["ask"] for question in questions)
        assert [ask for ask, count in asked.items() if count > 1] == [], file.name
        for question in questions:
            assert question["right"] in known, question["ask"]


@each_project
def test_questions_are_worded_in_three_ways_alike(project: Path) -> None:
    files = sorted(project.glob("questions*.yaml"))
    worded = [question["how"] for file in files for question in read(file) if "how" in question]
    assert Counter(worded) == (dict.fromkeys(WORDINGS, 20) if worded else {})


@each_project
def test_a_question_in_other_words_shares_none_with_its_answer(project: Path) -> None:
    answers = {f"{session}/{memory['id']}": memory for session, memory in memories(project)}
    for file in sorted(project.glob("questions*.yaml")):
        for question in read(file):
            if question.get("how") == "other":
                answer = answers[question["right"]]
                said = (answer[kind_of(answer)], answer.get("rationale"), answer.get("resolved"))
                shared = words(question["ask"]) & words(f"{said} {answer.get('tags')}")
                assert shared == set(), question["ask"]
