"""A piece that takes too long is given up and named, and the rest goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from derived_rows import contents

from smp_client import Memory, TookTooLong
from smp_client.index import take_in as indexing
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild
from smp_client.model.deadline import deadline, interruptible, step
from smp_client.model.record import Kind
from smp_client.text.contents import parse_json
from smp_client.text.values import load
from smp_daemon.worker import Stopping


def test_whoever_runs_the_work_is_asked_at_every_step_and_can_end_it(memory: Memory) -> None:
    """Reading a file is a step.

    What is raised there is taken for the fault of no file, and the index stays as it was.
    """
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    index = Index.in_memory()
    rebuild(memory, index)
    before, asked = contents(index), []

    def stop() -> None:
        asked.append(True)
        if len(asked) > 5:
            raise Stopping

    with pytest.raises(Stopping), interruptible(stop):
        rebuild(memory, index)
    assert len(asked) == 6
    assert contents(index) == before
    index.close()


def test_a_file_that_takes_too_long_costs_only_itself(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index keeps what it knew of it, says so, and takes in the others; when it can be read
    again, it is."""
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    assert len(memory.search("oauth")) == 1
    session.record_decision("Use Postgres with OAuth", made_by="a")
    session.record_finding("OAuth is slow", discovered_by="a", severity="low")
    with monkeypatch.context() as patch:
        patch.setattr("smp_client.index.take_in._BYTES_PER_S", -1e-9)
        assert [record.id for record in memory.search("oauth")] == ["DEC-001"]
        assert "took too long" in str(memory.search("oauth") and index_problems(memory))
    (memory.root / "active/s1/decisions.yaml").touch()
    (memory.root / "active/s1/findings.yaml").touch()
    assert {record.id for record in memory.search("oauth")} == {"DEC-001", "DEC-002", "FIND-001"}


def index_problems(memory: Memory) -> list[str]:
    index = Index.open_to_read(memory.root / ".smp/index.db")
    try:
        return [state.problem for state in index.files().values() if state.problem]
    finally:
        index.close()


def test_an_error_that_nobody_thought_of_costs_one_file(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what was taken in of it is taken back, and check names it."""
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    session.record_finding("OAuth is slow", discovered_by="a", severity="low")
    real = indexing._entry_of

    def broken(kind: Kind, *more: Any) -> Any:
        if kind.name == "finding":
            raise RuntimeError("a bug")
        return real(kind, *more)

    with monkeypatch.context() as patch:
        patch.setattr(indexing, "_entry_of", broken)
        assert [record.id for record in memory.search("oauth")] == ["DEC-001"]
        assert ["a bug" in problem for problem in index_problems(memory)] == [True]


@pytest.mark.parametrize(
    "read",
    [
        lambda: load(f"a: [{'a,' * 100_000}]"),
        lambda: load("".join(f"k{number}: a\n" for number in range(100_000))),
        lambda: parse_json(b"[" + b"1," * 100_000 + b"1]"),
        lambda: parse_json(json.dumps(dict.fromkeys(map(str, range(100_000)))).encode()),
    ],
    ids=["a list", "a mapping", "a list of JSON", "an object of JSON"],
)
def test_the_time_is_looked_at_all_along_one_long_value(read: Callable[[], object]) -> None:
    asked: list[bool] = []
    with interruptible(lambda: asked.append(True)):
        read()
    assert len(asked) > 200
    with pytest.raises(TookTooLong), deadline(0):
        read()


def test_a_query_shows_that_its_process_is_alive_and_cannot_be_ended() -> None:
    """An exception inside SQLite would become an error of the index. Steps of the heart raise none."""
    beats: list[bool] = []

    def stop() -> None:
        raise Stopping

    def heart() -> None:
        step()
        beats.append(True)

    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
    with closing(Index.in_memory()) as index, interruptible(stop, heart), deadline(0):
        assert index.execute(f"{numbers} SELECT MAX(i) FROM n").fetchone() == (100_000,)
    assert len(beats) > 10
