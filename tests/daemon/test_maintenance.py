"""Jobs by the clock: sessions age, are archived and used again, while other work goes on."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from daemons import Daemon, running, settings_file, smp, status, wait_until, wait_until_true

from smp_client import Memory, QuotaExceeded, Session
from smp_client.index import vacuum
from smp_client.index.sync import bring_up_to_date
from smp_client.model.times import now, parse_time, render_time
from smp_client.passes import lifecycle, overdue
from smp_client.passes.tidy import tidy
from smp_daemon.schedule import JOBS_FILE, KNOWN_SINCE, load_successes, save_successes

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
SECOND_DAYS = 1 / 86_400
BY_THE_CLOCK = ("decay", "lifecycle", "archive", "purge")


def old_session(memory: Memory, name: str, age: timedelta, **options: Any) -> Session:
    """One that was made, and last used, so long ago."""
    then = Memory(memory.root, clock=lambda: now() - age, fsync="batch")
    session = then.create_session(id=name, **options)
    session.record_decision("Use OAuth", made_by="architect")
    session.add_turn("user", "How do we sign in?")
    known_for_long(memory)
    return memory.session(name)


def known_for_long(memory: Memory) -> None:
    """As if a daemon had looked after it before, and none for a month."""
    save_successes(memory, {KNOWN_SINCE: render_time(now() - 30 * DAY), **load_successes(memory)})


def live_on(memory: Memory, days: float = 7) -> None:
    lifecycle.observe(memory)
    path = memory.root / overdue.FILE
    ledger = json.loads(path.read_text())
    path.write_text(
        json.dumps({**ledger, "uptime_s": ledger["uptime_s"] + days * DAY.total_seconds()})
    )


def jobs_done(daemon: Daemon, *names: str) -> None:
    """Those that were missed have each run once."""
    for name in names or BY_THE_CLOCK:
        wait_until(
            lambda name=name: [line for line in daemon.said(name) if line["component"] == "job"],
            f"{name} has run",
        )


def job(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = status(root)["jobs"].get(name) or {}
    return found


def forget_success(memory: Memory, *names: str) -> None:
    """As if these jobs had never run: the next daemon catches them up."""
    save_successes(
        memory, {name: when for name, when in load_successes(memory).items() if name not in names}
    )


# The life of a session


def test_a_session_ages_by_itself_and_is_active_when_it_is_used_again(
    memory: Memory, tmp_path: Path
) -> None:
    """Each by its age, with its reason in the log."""
    idle, decaying = old_session(memory, "idle", 2 * DAY), old_session(memory, "decaying", 8 * DAY)
    fresh = memory.create_session(id="fresh")
    config = settings_file(tmp_path, lifecycle={"check_every_s": 1})
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        jobs_done(daemon)
        assert (idle.state, decaying.state, fresh.state) == ("idle", "decaying", "active")
        said = daemon.said("become_decaying")[0]
        assert (said["component"], said["session_id"]) == ("lifecycle", "decaying")
        assert "not used for 8 days" in said["reason"]
        with (memory.root / "active/decaying/conversation.md").open("a") as file:
            file.write(
                f"\n## Turn 2\n**Speaker:** user\n**Timestamp:** {render_time(now())}\n"
                "\nStill there?\n\n---\n"
            )
        wait_until(lambda: decaying.state == "active", "it is used again")
        wait_until(
            lambda: status(memory.root)["roots"][0]["sessions"] == {"active": 2, "idle": 1},
            "status says so",
        )


def test_those_that_are_due_are_archived_and_nothing_counts_as_lost(
    memory: Memory, tmp_path: Path
) -> None:
    """Five of six sessions leave `active/` within a moment."""
    for number in range(5):
        old_session(memory, f"old-{number}", 31 * DAY)
    memory.create_session(id="fresh")
    live_on(memory)
    with running(memory.root, log=tmp_path / "log") as daemon:
        jobs_done(daemon)
        assert [path.name for path in (memory.root / "active").iterdir()] == ["fresh"]
        wait_until_true(memory.root)
        did = wait_until(
            lambda: job(memory.root, "archive").get("did"), "status says what was done"
        )
        assert (did["sessions"], did["archive"]) == (6, 5)
        found = status(memory.root)
        assert (found["health"], found["problems"]) == ("ok", [])
        assert found["roots"][0]["sessions"] == {"active": 1, "archived": 5}
        assert "archived after 30 days" in daemon.said("archive")[0]["reason"]
        assert "1 active, 5 archived" in smp("status", "--root", memory.root).stdout
        found = [
            record
            for record in memory.search("OAuth", types=["decision"])
            if record.marks == ("archived",)
        ]
        assert {record.session for record in found} == {f"old-{number}" for number in range(5)}


def test_other_thresholds_hold_after_a_reload(memory: Memory, tmp_path: Path) -> None:
    """A session of two hours is active, and idle after SIGHUP with idle_after_hours."""
    session = old_session(memory, "s", 2 * HOUR)
    config = settings_file(tmp_path, lifecycle={"check_every_s": 1})
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        jobs_done(daemon, "purge")
        assert session.state == "active"
        settings_file(tmp_path, lifecycle={"check_every_s": 1, "idle_after_hours": 1})
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: session.state == "idle", "it is idle")
        assert (
            "idle after 1 hours"
            in wait_until(lambda: daemon.said("become_idle"), "it says why")[0]["reason"]
        )


# Jobs


def test_a_failing_session_stops_no_other_and_status_says_so_until_it_is_mended(
    memory: Memory, tmp_path: Path
) -> None:
    """The metadata of one of three cannot be read."""
    for name in ("a", "b", "c"):
        old_session(memory, name, 2 * DAY)
    broken = memory.root / "active/b/metadata.yaml"
    whole = broken.read_bytes()
    broken.write_bytes(b"session: [unclosed\n")
    config = settings_file(tmp_path, lifecycle={"check_every_s": 1})
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        jobs_done(daemon)
        assert [memory.session(name).state for name in ("a", "c")] == ["idle", "idle"]
        found = wait_until(
            lambda: (one := job(memory.root, "lifecycle")).get("last_error") and one,
            "the error is told",
        )
        assert found["last_error"].startswith("1 of 3 sessions: b: ")
        assert found["last_success"] is not None
        said = status(memory.root)
        assert said["health"] == "degraded"
        assert any(
            problem.startswith("lifecycle failed: 1 of 3 sessions: b: ")
            for problem in said["problems"]
        )
        assert daemon.said("lifecycle failed")[0]["session_id"] == "b"
        broken.write_bytes(whole)
        wait_until(lambda: memory.session("b").state == "idle", "it ages too")
        wait_until(lambda: job(memory.root, "lifecycle")["last_error"] is None, "it is well")


def test_what_was_missed_is_caught_up_once_and_the_rest_is_not_run(
    memory: Memory, tmp_path: Path
) -> None:
    """Off since seven hours."""
    old_session(memory, "s", DAY)
    smp("sync", "--root", memory.root)
    off = {name: render_time(now()) for name in ("scan", "rebuild", "archive", "purge")}
    save_successes(
        memory,
        {**off, "decay": render_time(now() - 7 * HOUR), "lifecycle": render_time(now() - 7 * HOUR)},
    )
    with running(memory.root, log=tmp_path / "first") as daemon:
        jobs_done(daemon, "decay", "lifecycle")
        assert {line["job"] for line in daemon.said("catching up")} == {"decay", "lifecycle"}
        assert daemon.said("refresh_priorities")
        found = wait_until(
            lambda: (one := job(memory.root, "decay")).get("did") and one, "it is told"
        )
        assert parse_time(found["last_success"]) > now() - HOUR
        assert parse_time(found["next_run"]) > now()
        assert found["duration_ms"] > 0
        assert found["did"] == {
            "sessions": 2,
            "refresh_priorities": len(daemon.said("refresh_priorities")),
        }
        wait_until(
            lambda: "decay" in json.loads((memory.root / JOBS_FILE).read_text()),
            "it is written down",
        )
    with running(memory.root, log=tmp_path / "second") as daemon:
        assert not daemon.said("catching up")


def test_nothing_ages_at_once_where_a_daemon_comes_for_the_first_time(
    memory: Memory, tmp_path: Path
) -> None:
    """Who tries the daemon on an old tree finds it as it was."""
    old_session(memory, "s", 300 * DAY)
    (memory.root / JOBS_FILE).unlink()
    for log in ("first", "second"):
        with running(memory.root, log=tmp_path / log) as daemon:
            assert {line["job"] for line in daemon.said("catching up")} <= {"scan", "rebuild"}
            assert smp("sync", "--root", memory.root).returncode == 0
            assert memory.session("s").state == "active"
    assert memory.session("s").get("DEC-001").text == "Use OAuth"


def many_old_sessions(memory: Memory, count: int) -> None:
    for number in range(count):
        old_session(memory, f"s-{number:03}", 3 * DAY)


def test_a_write_is_found_while_a_long_job_runs(memory: Memory, tmp_path: Path) -> None:
    many_old_sessions(memory, 80)
    smp("sync", "--root", memory.root)
    with running(memory.root, log=tmp_path / "log") as daemon:
        wait_until(lambda: daemon.said("refresh_priorities"), "decay has begun")
        written = memory.session("s-079").record_decision("Found at once", made_by="a")
        assert bring_up_to_date(memory) == "daemon"
        assert not [line for line in daemon.said("decay") if line["component"] == "job"]
        assert written.id in [record.id for record in memory.search("Found at once")]
        jobs_done(daemon, "decay")
        assert (
            wait_until(lambda: job(memory.root, "decay")["did"], "status says so")["sessions"] == 81
        )


def test_told_to_stop_in_the_middle_it_stops_and_begins_again_at_the_next_start(
    memory: Memory, tmp_path: Path
) -> None:
    """SIGTERM while 50 sessions are decayed."""
    many_old_sessions(memory, 50)
    smp("sync", "--root", memory.root)
    with running(memory.root, log=tmp_path / "log") as daemon:
        wait_until(lambda: daemon.said("refresh_priorities"), "decay has begun")
        assert daemon.stop() == 0
        assert not [line for line in daemon.said("decay") if line["component"] == "job"]
        assert "decay" not in load_successes(memory)
    with running(memory.root, log=tmp_path / "next") as daemon:
        jobs_done(daemon, "decay")
        assert daemon.said("refresh_priorities")


# Quota


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_a_session_is_made_smaller_when_it_passes_its_share_while_it_is_written(
    memory: Memory, tmp_path: Path
) -> None:
    quota = 400_000
    then = Memory(memory.root, clock=lambda: now() - 20 * DAY)
    session = then.create_session(id="s", quota_bytes=quota)
    while session.size().total_bytes < 0.75 * quota:
        session.add_turn("user", "We talked about the weather and about lunch. " * 20)
    writer = memory.session("s")
    known_for_long(memory)
    with running(memory.root, log=tmp_path / "log") as daemon:
        jobs_done(daemon)

        def write() -> None:
            text, written = "Something new that must stay. " * 30, 0
            while written < 0.35 * quota:
                wait_until(lambda: writer.size().utilization_pct < 95, "there is room")
                writer.add_turn("user", text)
                written += len(text)

        thread, errors = in_background(write)
        thread.join()
        assert not [error for error in errors if isinstance(error, QuotaExceeded)], errors
        assert not errors
        wait_until(
            lambda: job(memory.root, "compaction").get("did", {}).get("bytes_freed"),
            "status says what it freed",
        )
        assert daemon.said("summarize_conversation") or daemon.said("remove_decayed")
        assert list((memory.root / "archived/s").glob("evicted-*.tar.gz"))
        new = [turn for turn in writer.turns() if turn.text.startswith("Something new")]
        assert sum(len(turn.text) for turn in new) >= 0.34 * quota
        wait_until_true(memory.root)


def test_a_full_session_that_cannot_be_made_smaller_is_a_problem_until_it_has_room(
    memory: Memory, tmp_path: Path
) -> None:
    """All of it is from today, so nothing may go."""
    session = memory.create_session(id="s", quota_bytes=100_000)
    session.add_turn("user", "x" * 96_000)
    with running(memory.root, log=tmp_path / "log"):
        found = wait_until(
            lambda: (said := status(memory.root))["health"] == "degraded" and said, "status says so"
        )
        assert any(
            problem.startswith("Session s is 9") and "could not be compacted" in problem
            for problem in found["problems"]
        )
        session.update_metadata(storage={"quota_bytes": 1_000_000})
        wait_until(lambda: status(memory.root)["health"] == "ok", "it has room")


# Purge and retention


def bytes_under(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_what_two_daemons_have_seen_overdue_is_purged(memory: Memory, tmp_path: Path) -> None:
    """Of a week of uptime the first daemon sees the beginning and the second the end."""
    secret = "correct horse battery staple"
    keeper = Memory(memory.root, clock=lambda: now() - 31 * DAY)
    old_session(keeper, "kept", DAY)
    session = keeper.create_session(id="s")
    session.record_finding(secret, discovered_by="a", severity="low")
    smp("sync", "--root", memory.root)
    session.delete("FIND-001", reason="asked for", deleted_by="user")
    memory.session("kept").get("DEC-001")
    for log, days in (("first", 3), ("second", 4)):
        with running(memory.root, log=tmp_path / log) as daemon:
            jobs_done(daemon, "purge")
            assert not daemon.said("purge_memories")
        forget_success(memory, "purge")
        live_on(memory, days)
    with running(memory.root, log=tmp_path / "third") as daemon:
        jobs_done(daemon, "purge")
        assert daemon.said("purge_memories")[0]["session_id"] == "s"
        assert "was seen overdue for 7.0 days" in daemon.said("purge_memories")[0]["reason"]
        assert (
            wait_until(lambda: job(memory.root, "purge")["did"], "status says so")["purge_memories"]
            == 1
        )
        assert daemon.stop() == 0

    def is_gone() -> bool:
        tidy(memory)
        return secret.encode() not in bytes_under(memory.root)

    wait_until(is_gone, "no byte of it is left")
    assert memory.get("kept/DEC-001").text == "Use OAuth"


def test_a_session_that_looks_old_to_a_new_daemon_is_not_archived_before_it_was_seen_unused(
    memory: Memory, tmp_path: Path
) -> None:
    """The clock may have leapt."""
    old_session(memory, "s", 40 * DAY)
    for log, days in (("first", 5), ("second", 2)):
        with running(memory.root, log=tmp_path / log) as daemon:
            jobs_done(daemon, "archive")
            assert not [line for line in daemon.said("archive") if line["component"] == "archive"]
            assert memory.session("s").state == "decaying"
        forget_success(memory, "archive", "lifecycle")
        live_on(memory, days)
    with running(memory.root, log=tmp_path / "third"):
        wait_until(
            lambda: [one.session for one in memory.archived_sessions()] == ["s"], "it is archived"
        )


def test_a_daemon_scrubs_its_index_for_somebody_else(memory: Memory, tmp_path: Path) -> None:
    """Whoever purges while a daemon leads asks it to."""
    session = memory.create_session(id="s")
    session.record_decision("xylophone", made_by="a")
    with running(memory.root, log=tmp_path / "log"):
        bring_up_to_date(memory)
        assert b"xylophone" in bytes_under(memory.root / ".smp")
        rewritten = (
            (memory.root / "active/s/decisions.yaml")
            .read_bytes()
            .replace(b"xylophone", b"glockenspiel")
        )
        (memory.root / "active/s/decisions.yaml").write_bytes(rewritten)
        vacuum.ask_for_scrub(memory)
        assert bring_up_to_date(memory, "scrub") == "daemon"
        assert vacuum.asked_for(memory) == []
        index = b"".join(path.read_bytes() for path in (memory.root / ".smp").glob("index.db*"))
        assert b"xylophone" not in index
