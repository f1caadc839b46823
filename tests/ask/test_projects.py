"""The made-up projects of the benchmarks are whole, and a page is measured by the memories on it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.context import figures, page_of
from benchmarks.projects import Project, Task, projects

PROJECTS = projects()


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_a_project_has_its_tasks_and_questions(project: Project) -> None:
    assert len(project.names) >= 150
    assert len(project.tasks) == 12
    assert all(5 <= len(set(task.needed)) <= 9 for task in project.tasks)
    asked = Counter(one.how for one in project.grouped_questions)
    assert not asked or asked == {"same": 20, "forms": 20, "other": 20}


SESSIONS = """\
session: 2026-01-01-door
topic: door
begins: 2026-01-01T08:00:00Z
memories:
  - {id: DEC-001, by: ann, decision: "The door is green", pinned: true}
  - {id: DEC-002, by: ann, decision: "The door is blue", supersedes: DEC-001}
  - {id: PREF-001, by: ann, preference: "No squeaking", topic: noise, confidence: explicit}
  - {id: PREF-002, by: ann, preference: "Oil on Mondays", topic: days, confidence: inferred}
  - {id: claude, by: claude, state: {next_steps: ["Paint the door"]}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "small").mkdir()
    (tmp_path / "small/1-door.yaml").write_text(SESSIONS)
    return Project(tmp_path / "small")


def test_a_page_is_measured_by_full_names(project: Project, tmp_path: Path) -> None:
    memory = project.build(tmp_path / "sessions")
    task = Task("paint the door", ("2026-01-01-door/DEC-002", "2026-01-01-door/DEC-001"))
    page = page_of(project, memory, task, 1500)
    assert page.found == ["2026-01-01-door/DEC-002"]
    assert page.missing == ["2026-01-01-door/DEC-001"]
    told = figures([page])
    assert (told.found, told.needed, told.pages) == (1, 2, 1)


def test_a_superseded_memory_is_not_among_those_that_always_hold(project: Project) -> None:
    assert project.always == ("2026-01-01-door/PREF-001",)


def test_a_task_that_names_no_memory_is_refused(project: Project) -> None:
    (project.folder / "tasks.yaml").write_text("- {task: x, needed: [2026-01-01-door/DEC-009]}")
    with pytest.raises(SystemExit, match="DEC-009"):
        assert project.tasks
