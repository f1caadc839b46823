"""Jobs by the clock: sessions age, are archived and used again, while other work goes on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, running, settings_file, smp, status, wait_until, wait_until_true

from smp_client import Memory, Session
from smp_client.index.sync import bring_up_to_date
from smp_client.model.times import now, parse_time, render_time
from smp_daemon.schedule import JOBS_FILE, KNOWN_SINCE, load_successes, save_successes

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
OFTEN = {"lifecycle": {"check_every_s": 1}}


def old_session(memory: Memory, name: str, age: timedelta) -> Session:
    """One that was made, and last used, so long ago, in a tree that a daemon knew before."""
    then = Memory(memory.root, clock=lambda: now() - age)
    session = then.create_session(id=name)
    session.record_decision("Use OAuth", made_by="architect")
    session.add_turn("user", "How do we sign in?")
    known_for_long(memory)
    return memory.session(name)


def known_for_long(memory: Memory) -> None:
    """As if a daemon had looked after the tree before, and none for a month."""
    save_successes(memory, {KNOWN_SINCE: render_time(now() - 30 * DAY), **load_successes(memory)})


def runs(daemon: Daemon, name: str) -> list[dict[str, Any]]:
    return [line for line in daemon.said(name) if line["component"] == "job"]


def jobs_done(daemon: Daemon, *names: str) -> None:
    """Wait until those that were missed have each run once."""
    for name in names or ("decay", "lifecycle", "archive", "purge"):
        wait_until(lambda name=name: runs(daemon, name), f"{name} has run")


def job(memory: Memory, name: str, field: str) -> Any:
    return (status(memory.root)["jobs"].get(name) or {}).get(field)


# The life of a session


def test_a_session_ages_by_itself_and_is_active_when_it_is_used_again(
    memory: Memory, tmp_path: Path
) -> None:
    """Each by its age, with its reason in the log."""
    idle, decaying = old_session(memory, "idle", 2 * DAY), old_session(memory, "decaying", 8 * DAY)
    fresh, config = memory.create_session(id="fresh"), settings_file(tmp_path, **OFTEN)
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        jobs_done(daemon)
        assert (idle.state, decaying.state, fresh.state) == ("idle", "decaying", "active")
        said = daemon.said("become_decaying")[0]
        assert (said["component"], said["session_id"]) == ("lifecycle", "decaying")
        assert "not used since" in said["reason"]
        turn = f"\n## Turn 2\n**Speaker:** user\n**Timestamp:** {render_time(now())}\n\nHi\n\n---\n"
        with (memory.root / "active/decaying/conversation.md").open("a") as file:
            file.write(turn)
        wait_until(lambda: decaying.state == "active", "it is used again")
        by_state = {"active": 2, "idle": 1}
        wait_until(lambda: status(memory.root)["roots"][0]["sessions"] == by_state, "status agrees")


def test_those_that_are_due_are_archived_and_nothing_counts_as_lost(
    memory: Memory, tmp_path: Path
) -> None:
    """Five of six sessions leave `active/` within a moment."""
    for number in range(5):
        old_session(memory, f"old-{number}", 31 * DAY)
    memory.create_session(id="fresh")
    with running(memory.root, log=tmp_path / "log") as daemon:
        jobs_done(daemon)
        assert [path.name for path in (memory.root / "active").iterdir()] == ["fresh"]
        wait_until_true(memory.root)
        did = wait_until(lambda: job(memory, "archive", "did"), "status says so")
        assert (did["sessions"], did["archive"]) == (6, 5)
        found = status(memory.root)
        assert (found["health"], found["problems"]) == ("ok", [])
        assert found["roots"][0]["sessions"] == {"active": 1, "archived": 5}
        assert "archived after 30 days" in daemon.said("archive")[0]["reason"]
        records = memory.search("OAuth", types=["decision"])
        archived = {record.session for record in records if record.marks == ("archived",)}
        assert archived == {f"old-{number}" for number in range(5)}


# Jobs


def test_a_session_that_fails_or_is_in_use_stops_no_other(memory: Memory, tmp_path: Path) -> None:
    """Status names the one that fails until it is mended. The one in use has its turn later."""
    sessions = {name: old_session(memory, name, 2 * DAY) for name in ("bad", "busy", "good")}
    broken = memory.root / "active/bad/metadata.yaml"
    whole = broken.read_bytes()
    broken.write_bytes(b"session: [unclosed\n")
    config = settings_file(tmp_path, **OFTEN, lock={"timeout_s": 0.1})
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        with sessions["busy"].scope.undisturbed("writing"):
            jobs_done(daemon, "decay", "lifecycle")
        failed = [*daemon.said("decay failed"), *daemon.said("lifecycle failed")]
        assert {line["session_id"] for line in failed} == {"bad"}
        wait_until(lambda: sessions["good"].state == sessions["busy"].state == "idle", "they age")

        def names_one() -> bool:
            return str(job(memory, "lifecycle", "last_error")).startswith("1 of 3 sessions: bad: ")

        wait_until(names_one, "status says so")
        assert job(memory, "lifecycle", "last_success") is not None
        assert "lifecycle failed: 1 of 3 sessions: bad" in " ".join(status(memory.root)["problems"])
        broken.write_bytes(whole)
        wait_until(lambda: sessions["bad"].state == "idle", "it ages too")
        wait_until(lambda: job(memory, "lifecycle", "last_error") is None, "it is well")


def test_what_was_missed_is_caught_up_once_and_the_rest_is_not_run(
    memory: Memory, tmp_path: Path
) -> None:
    """Off since seven hours."""
    old_session(memory, "s", DAY)
    smp("sync", "--root", memory.root)
    done = {name: render_time(now()) for name in ("scan", "rebuild", "archive", "purge")}
    late = dict.fromkeys(("decay", "lifecycle"), render_time(now() - 7 * HOUR))
    save_successes(memory, {**done, **late})
    with running(memory.root, log=tmp_path / "first") as daemon:
        jobs_done(daemon, "decay", "lifecycle")
        assert {line["job"] for line in daemon.said("due")} == {"decay", "lifecycle"}
        changed = len(daemon.said("refresh_priorities"))
        did = wait_until(lambda: job(memory, "decay", "did"), "status says so")
        assert did == {"sessions": 2, "refresh_priorities": changed}
        found = status(memory.root)["jobs"]["decay"]
        assert parse_time(found["last_success"]) > now() - HOUR
        assert parse_time(found["next_run"]) > now()
        assert found["duration_ms"] > 0
        wait_until(lambda: "decay" in (memory.root / JOBS_FILE).read_text(), "it is kept")
    with running(memory.root, log=tmp_path / "second") as daemon:
        assert not daemon.said("due")


def test_nothing_ages_at_once_where_a_daemon_comes_for_the_first_time(
    memory: Memory, tmp_path: Path
) -> None:
    """Who tries the daemon on an old tree finds it as it was."""
    old_session(memory, "s", 300 * DAY)
    (memory.root / JOBS_FILE).unlink()
    for log in ("first", "second"):
        with running(memory.root, log=tmp_path / log) as daemon:
            assert {line["job"] for line in daemon.said("due")} == set()
            assert smp("sync", "--root", memory.root).returncode == 0
            assert memory.session("s").state == "active"


def test_a_write_is_found_while_a_long_job_runs_and_a_stop_does_not_wait_for_it(
    memory: Memory, tmp_path: Path
) -> None:
    """The job begins again at the next start."""
    for number in range(80):
        old_session(memory, f"s-{number:03}", 3 * DAY)
    smp("sync", "--root", memory.root)
    with running(memory.root, log=tmp_path / "log") as daemon:
        wait_until(lambda: daemon.said("refresh_priorities"), "decay has begun")
        written = memory.session("s-079").record_decision("Found at once", made_by="a")
        assert bring_up_to_date(memory) == "daemon"
        assert not runs(daemon, "decay")
        assert written.id in [record.id for record in memory.search("Found at once")]
        assert daemon.stop() == 0
        assert not runs(daemon, "decay")
        assert "decay" not in load_successes(memory)
    with running(memory.root, log=tmp_path / "next") as daemon:
        jobs_done(daemon, "decay")
        assert daemon.said("refresh_priorities")
        did = wait_until(lambda: job(memory, "decay", "did"), "status says so")
        assert did["sessions"] == 81


# Quota


def test_a_session_is_made_smaller_when_it_passes_its_share_while_it_is_written(
    memory: Memory, tmp_path: Path
) -> None:
    quota, text = 400_000, "Something new that must stay. " * 30
    then = Memory(memory.root, clock=lambda: now() - 20 * DAY)
    session = then.create_session(id="s", quota_bytes=quota)
    while session.size().total_bytes < 0.75 * quota:
        session.add_turn("user", "We talked about the weather and about lunch. " * 20)
    writer = memory.session("s")
    known_for_long(memory)
    with running(memory.root, log=tmp_path / "log") as daemon:
        jobs_done(daemon)
        written = 0
        while written < 0.35 * quota:
            wait_until(lambda: writer.size().utilization_pct < 95, "there is room")
            writer.add_turn("user", text)
            written += len(text)
        freed = "status says how much it freed"
        wait_until(lambda: (job(memory, "compaction", "did") or {}).get("bytes_freed"), freed)
        assert daemon.said("summarize_conversation") or daemon.said("remove_decayed")
        assert list((memory.root / "archived/s").glob("evicted-*.tar.gz"))
        new = [turn for turn in writer.turns() if turn.text.startswith("Something new")]
        assert sum(len(turn.text) for turn in new) >= 0.34 * quota
        wait_until_true(memory.root)


@pytest.mark.parametrize("automatic", [True, False])
def test_a_session_that_stays_full_is_a_problem_until_it_has_room(
    memory: Memory, tmp_path: Path, automatic: bool
) -> None:
    """All of it is from today, or its settings want no compaction. Each write does not try again."""
    config = settings_file(tmp_path, compaction={"automatic": automatic})
    session = memory.create_session(id="s", quota_bytes=100_000)
    session.add_turn("user", "x" * 96_000)
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        full = "% full: archive it or raise its quota."
        wait_until(lambda: full in " ".join(status(memory.root)["problems"]), "status says so")
        session.add_turn("user", "Hi")
        assert bring_up_to_date(memory) == "daemon"
        session.update_metadata(storage={"quota_bytes": 1_000_000})
        wait_until(lambda: status(memory.root)["health"] == "ok", "it has room")
        assert len(daemon.said("compacting")) == automatic
