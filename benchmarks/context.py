"""Whether the page for a task holds the memories that it needs: `python -m benchmarks.context`

Each project of `benchmarks/` (see `benchmarks/projects.py`) has twelve tasks, each with the memories that an
experienced colleague would want on the page. They were written before the code was changed and must not be
fitted to it afterwards. Every task is asked of `memory.context`, a week after the last session.

  needed   the share of the needed memories that are on the page, over all tasks
  serving  the share of the memories on the page that the task needs
  shared   the share of equal lines of two pages for different tasks, the mean over all pairs
  beside   the share of equal memories of two pages, without pinned ones and explicit preferences, which every page should have
  always   the share of pinned memories and explicit preferences that are on the page
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.projects import Project, Task, projects
from smp_client import Memory

TOKENS = (800, 1500, 4000)


@dataclass(frozen=True)
class Page:
    """The page for a task: its lines below the head, and the memories on it."""

    project: Project
    task: Task
    max_tokens: int
    lines: frozenset[str]
    included: frozenset[str]

    @property
    def found(self) -> list[str]:
        return [name for name in self.task.needed if name in self.included]

    @property
    def missing(self) -> list[str]:
        return [name for name in self.task.needed if name not in self.included]

    @property
    def beside(self) -> frozenset[str]:
        """Return the memories on the page, without those that every page should have."""
        return self.included - set(self.project.always)

    @property
    def always_missing(self) -> list[str]:
        return [name for name in self.project.always if name not in self.included]


@dataclass(frozen=True)
class Figures:
    """The counts of several pages of one size."""

    needed: int
    found: int
    on_page: int
    shared: float
    beside: float
    always: int
    always_found: int
    pages_with_always: int
    pages: int


def main() -> None:
    given = _arguments()
    chosen = [one for one in projects() if one.tasks and given.only in (None, one.name)]
    pages = [page for project in chosen for page in pages_of(project)]
    if given.json:
        print(json.dumps([_as_json(page) for page in pages], indent=1))
        return
    if given.all:
        _print_missing(pages)
    _print(pages)


def pages_of(project: Project) -> Iterator[Page]:
    """Build the project and yield the page for each of its tasks, in every size."""
    with tempfile.TemporaryDirectory() as directory:
        memory = project.build(Path(directory) / "sessions")
        for max_tokens in TOKENS:
            for task in project.tasks:
                yield page_of(project, memory, task, max_tokens)


def page_of(project: Project, memory: Memory, task: Task, max_tokens: int) -> Page:
    context = memory.context(task=task.text, max_tokens=max_tokens)
    names = frozenset(map(project.full_name, context.included))
    return Page(project, task, max_tokens, frozenset(_lines(context)), names)


def figures(pages: Sequence[Page]) -> Figures:
    """Return the counts of pages of one size. Only pages of one project are compared."""
    pairs = [
        (one, other)
        for one, other in combinations(pages, 2)
        if one.project is other.project and one.task != other.task
    ]
    return Figures(
        needed=sum(len(page.task.needed) for page in pages),
        found=sum(len(page.found) for page in pages),
        on_page=sum(len(page.included) for page in pages),
        shared=_mean([_shared(one.lines, other.lines) for one, other in pairs]),
        beside=_mean([_shared(one.beside, other.beside) for one, other in pairs]),
        always=sum(len(page.project.always) for page in pages),
        always_found=sum(len(page.project.always) - len(page.always_missing) for page in pages),
        pages_with_always=sum(not page.always_missing for page in pages),
        pages=len(pages),
    )


def _lines(context: str) -> Iterator[str]:
    """Yield the lines below the first heading of a part. Headings and empty lines do not count."""
    below = False
    for line in context.splitlines():
        if line.startswith("## "):
            below = True
        elif below and line.strip():
            yield line


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / ((len(one) + len(other)) or 1)


def _mean(shares: Sequence[float]) -> float:
    return sum(shares) / (len(shares) or 1)


def _print(pages: Sequence[Page]) -> None:
    print(f"{'project':<12}{'tokens':>7}{'needed':>16}{'serving':>17}{'shared':>8}{'beside':>8}{'always':>17}{'pages with all':>16}")
    names = sorted({page.project.name for page in pages})
    for name in [*names, "all"] if len(names) > 1 else names:
        for max_tokens in TOKENS:
            of_size = [page for page in pages if page.max_tokens == max_tokens]
            told = figures([page for page in of_size if name in (page.project.name, "all")])
            print(
                f"{name:<12}{max_tokens:>7}"
                f"{_share(told.found, told.needed):>16}"
                f"{_share(told.found, told.on_page):>17}"
                f"{told.shared:>8.0%}"
                f"{told.beside:>8.0%}"
                f"{_share(told.always_found, told.always):>17}"
                f"{f'{told.pages_with_always} of {told.pages}':>16}"
            )


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {part / (whole or 1):.0%}"


def _print_missing(pages: Sequence[Page]) -> None:
    for page in pages:
        missing = [*page.missing, *(f"{name} (always)" for name in page.always_missing)]
        print(f"{page.project.name}, {page.max_tokens} tokens: {page.task.text}")
        for name in missing:
            print(f"    lacks {name}")


def _as_json(page: Page) -> dict[str, Any]:
    return {
        "project": page.project.name,
        "task": page.task.text,
        "max_tokens": page.max_tokens,
        "found": page.found,
        "missing": page.missing,
        "included": sorted(page.included),
        "always_missing": page.always_missing,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.context",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="PROJECT", help="only this project")
    parser.add_argument("--all", action="store_true", help="print the needed memories that are missing")
    parser.add_argument("--json", action="store_true", help="print every page's memories as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
