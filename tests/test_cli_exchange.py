"""`smp export` and `smp import`, as people and scripts use them."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from daemons import SMP, smp
from once import copied
from test_exchange import contents

from smp_client import Memory, StorageFailed, audit
from smp_client.exchange import formats
from smp_daemon.cli import smp as main_command
from smp_daemon.cli.importing import entries_in, look

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J"


def stocked(root: Path) -> None:
    memory = Memory(root)
    session = memory.create_session(id="session-one", project="E-Commerce")
    session.record_decision(f"Use OAuth 2.0 {HOSTILE}", made_by="architect")
    session.add_turn("user", "Hello")
    memory.create_session(id="packed").add_turn("user", "Long ago")
    memory.archive_session("packed", "done")
    memory.everywhere.record_preference("Tea")
    memory.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copied(stocked, tmp_path / "sessions")


def run(root: Path, *arguments: object, code: int = 0, **options: Any) -> Result:
    done = CliRunner().invoke(main_command, [*map(str, arguments), "--root", str(root)], **options)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_everything_goes_through_a_pipe_into_another_tree(root: Path, tmp_path: Path) -> None:
    """`smp export --all | smp import -` makes an equal tree."""
    out = subprocess.run([*SMP, "export", "--all", "--root", str(root)], capture_output=True, check=True)
    assert out.stdout.startswith(b"---\nsmp_export: 1\n")
    command = [*SMP, "import", "-", "--root", str(tmp_path / "copy")]
    done = subprocess.run(command, input=out.stdout, capture_output=True, check=True)
    assert b"session-one" in done.stdout
    assert contents(tmp_path / "copy") == contents(root)


def test_an_import_counts_the_memories_that_sessions_counts(tmp_path: Path) -> None:
    """An agent's state and an artifact are memories, an earlier state is none; the second time all of them are there."""
    session = Memory(tmp_path / "sessions").create_session(id="s")
    session.record_decision("Use OAuth", made_by="ada")
    session.save_agent_state("ada", {"focus": "keys"})
    session.save_agent_state("ada", {"focus": "tokens"})
    session.save_artifact("report", "All is well.")
    run(tmp_path / "sessions", "export", "--all", "-o", tmp_path / "all.yaml")
    first, again = (json.loads(run(tmp_path / "copy", "import", tmp_path / "all.yaml", "--json").stdout) for _ in range(2))
    (listed,) = json.loads(run(tmp_path / "copy", "sessions", "--json").stdout)
    assert (first["added"], first["skipped"]) == (listed["memories"], 0) == (3, 0)
    assert (again["added"], again["skipped"]) == (0, 3)


@pytest.mark.parametrize(("name", "begins"), [
    ("a.yaml", "---\nsmp_export: 1"), ("a.yml", "---\nsmp_export: 1"), ("a.json", '{"smp_export": 1, "entries": ['),
    ("a.jsonl", '{"smp_export": 1}\n'), ("a.md", "# SMP export\n"), ("a.txt", "---\nsmp_export: 1"),
])  # fmt: skip
def test_the_ending_of_the_file_says_the_format(root: Path, tmp_path: Path, name: str, begins: str) -> None:
    said = run(root, "export", "--all", "-o", tmp_path / name).output
    assert "2 sessions" in said
    assert (tmp_path / name).read_text().startswith(begins)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert "there is already" not in run(root, "import", tmp_path / name).output


def test_a_session_is_named_as_everywhere(root: Path, tmp_path: Path) -> None:
    """By the beginning of its id, as latest, in the archive; one that is nowhere is refused before anything is written."""
    for name, session in (("session-", "session-one"), ("latest", "session-one"), ("pack", "packed")):
        lines = run(root, "export", name, "--format", "jsonl").stdout.splitlines()
        assert {json.loads(line).get("session", session) for line in lines} == {session}
    assert "cross-session" in run(root, "export", "global", "--format", "jsonl").stdout
    run(root, "export", "nobody", "-o", tmp_path / "x.json", code=1)
    assert not (tmp_path / "x.json").exists()


def test_what_does_not_go_together_is_refused(root: Path, tmp_path: Path) -> None:
    run(root, "export", code=2)
    run(root, "export", "latest", "--all", code=2)
    run(root, "export", "latest", "--json", code=2)
    run(root, "import", tmp_path / "nowhere", code=2)


def test_a_file_is_not_overwritten_unless_forced(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    target.write_text("mine")
    told = smp("export", "--all", "-o", target, "--root", root).stderr
    assert "there already" in told
    assert "--force" in told
    assert target.read_text() == "mine"
    run(root, "export", "--all", "-o", target, "--force")
    assert target.read_text() != "mine"


def test_json_says_what_was_done(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    done = json.loads(run(root, "export", "--all", "-o", target, "--json").stdout)
    assert done["sessions"] == ["packed", "session-one"]
    assert done["bytes"] == target.stat().st_size
    assert (done["problems"], done["file"]) == ([], str(target))
    would = json.loads(run(tmp_path / "copy", "import", target, "--dry-run", "--json").stdout)
    assert not (tmp_path / "copy").exists()
    did = json.loads(run(tmp_path / "copy", "import", target, "--json").stdout)
    assert would == {**did, "dry_run": True}
    assert did["sessions"] == {"global": "merged", "packed": "archived", "session-one": "new"}
    assert (did["added"], did["skipped"], did["problems"]) == (4, 0, [])


def test_what_could_not_be_taken_in_is_told_on_stderr_and_ends_with_1(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.jsonl"
    run(root, "export", "--all", "-o", target)
    target.write_text(target.read_text().replace('"entry": "profile"', "x") + "nonsense\n")
    done = smp("import", target, "--root", tmp_path / "copy")
    assert done.returncode == 1
    assert f"smp: {target}, line " in done.stderr
    assert "4 memories added" in done.stdout


def test_a_file_is_named_once_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_text('{"id": "m1", "type": "decision", "ts": "2026-01-11T10:00:00Z", "data": {}}\n{"x": "y\n')
    (problem,) = Memory(tmp_path / "root").import_(path, layout="jsonl", dry_run=True).problems
    assert problem == f"{path}, line 2: not JSON: Unterminated string starting at character 7; it goes to quarantine/s1"
    (problem,) = Memory(tmp_path / "root").import_(tmp_path, layout="jsonl", dry_run=True).problems
    assert problem.startswith(f"{tmp_path}: s1.jsonl, line 2: ")


def test_new_ids_are_told(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.md"
    run(root, "export", "latest", "-o", target)
    Memory(tmp_path / "copy").create_session(id="session-one").record_decision("Mine", made_by="me")
    assert "DEC-001 is DEC-002" in run(tmp_path / "copy", "import", target).stdout


def test_no_memory_drives_the_terminal(root: Path) -> None:
    for form in ("yaml", "json", "jsonl", "markdown"):
        assert "\x1b" not in run(root, "export", "--all", "--format", form).stdout


def test_the_audit_log_tells_of_both(root: Path, tmp_path: Path) -> None:
    run(root, "export", "latest", "-o", tmp_path / "x.json")
    run(tmp_path / "copy", "import", tmp_path / "x.json")
    assert [line["action"] for line in audit.read(Memory(root).tree)] == ["export"]
    assert [line["action"] for line in audit.read(Memory(tmp_path / "copy").tree)] == ["import", "import"]


@pytest.mark.parametrize(("options", "ids"), [
    (["session-one", "--id", "DEC-001"], ["DEC-001"]), (["session-one", "--text", "hello"], ["turn-1"]),
    (["--all", "--type", "turn"], ["turn-1", "turn-1"]), (["--all", "--text", "tea"], ["GPREF-001"]),
    (["session-one", "packed", "--agent", "user"], ["turn-1", "turn-1"]), (["session-one", "--topic", "nothing"], []),
])  # fmt: skip
def test_a_selection_holds_what_fits_and_no_more(root: Path, options: list[str], ids: list[str]) -> None:
    """By id or by conditions, of one session, several or all, archived ones too."""
    lines = map(json.loads, run(root, "export", *options, "--format", "jsonl").stdout.splitlines())
    assert [line["record"]["id"] for line in lines if line.get("entry") == "memory"] == ids


@pytest.mark.parametrize("options", [
    ["--all", "--id", "DEC-001"], ["session-one", "packed", "--id", "DEC-001"], ["session-one", "--id", "DEC-001", "--text", "x"],
    ["session-one", "--deleted", "--text", "x"],
])  # fmt: skip
def test_a_selection_that_makes_no_sense_is_refused(root: Path, options: list[str]) -> None:
    assert run(root, "export", *options, code=2).output.startswith("Usage")


def test_a_selection_that_names_what_there_is_not_says_so(root: Path) -> None:
    done = smp("export", "session-one", "--id", "DEC-999", "--root", root)
    assert (done.returncode, done.stdout) == (1, "") or "DEC-999" in done.stderr


def test_a_file_that_cannot_be_is_refused_with_its_reason(root: Path, tmp_path: Path) -> None:
    """A missing directory is no matter of a full disk; and a directory is not written over."""
    for target, reason in ((tmp_path / "nowhere/x.md", f"the directory {tmp_path / 'nowhere'} does not exist"),
                           (tmp_path, f"{tmp_path} is a directory")):  # fmt: skip
        told = smp("export", "--all", "--force", "-o", target, "--root", root)
        assert told.returncode == 2
        assert reason in told.stderr
        assert "disk" not in told.stderr
    assert not audit.read(Memory(root).tree)


def test_a_disk_that_is_full_is_named(root: Path) -> None:
    with pytest.raises(StorageFailed, match="Could not write /dev/full: No space left on device"):
        Memory(root).export("/dev/full")


def test_the_format_is_told_and_has_short_names(root: Path, tmp_path: Path) -> None:
    assert "entries of yaml" in run(root, "export", "--all", "-o", tmp_path / "x.txt").output
    assert "entries of markdown" in run(root, "export", "--all", "--format", "md", "-o", tmp_path / "y.txt").output
    assert (tmp_path / "y.txt").read_text().startswith("# SMP export")
    assert run(root, "export", "--all", "--format", "yml").output.startswith("---\nsmp_export: 1")


def test_what_is_no_plain_file_is_written_as_a_stream(root: Path, tmp_path: Path) -> None:
    """/dev/stdout is stdout, also where that is a file with something in it already; a named pipe is written into."""
    kept = tmp_path / "kept.txt"
    kept.write_text("mine\n")
    with kept.open("ab") as out:
        subprocess.run([*SMP, "export", "--all", "-o", "/dev/stdout", "--root", str(root)], stdout=out, check=True)
    assert kept.read_text().startswith("mine\n---\nsmp_export: 1")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen([*SMP, "export", "--all", "-o", str(tmp_path / "pipe"), "--root", str(root)]) as writing:
        assert (tmp_path / "pipe").read_text().startswith("---\nsmp_export: 1")
    assert writing.returncode == 0
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("form", ["yaml", "json", "jsonl", "markdown"])
def test_a_packed_export_is_read_as_it_is(root: Path, tmp_path: Path, form: str) -> None:
    """With gzip, as a file of any name or through a pipe."""
    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(run(root, "export", "--all", "--format", form).stdout_bytes))
    run(tmp_path / "copy", "import", packed)
    run(tmp_path / "piped", "import", "-", input=packed.read_bytes())
    assert contents(tmp_path / "copy") == contents(tmp_path / "piped") == contents(root)


def test_a_packed_export_that_is_cut_off_gives_what_it_holds(root: Path, tmp_path: Path) -> None:
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(run(root, "export", "--all", "--format", "jsonl").stdout_bytes)[:-12])
    done = smp("import", packed, "--root", tmp_path / "copy")
    assert done.returncode == 1
    assert "cannot be unpacked" in done.stderr
    assert Memory(tmp_path / "copy").session("session-one").turns()[0].text == "Hello"


def test_what_is_packed_and_no_export_is_refused(root: Path, tmp_path: Path) -> None:
    packed = tmp_path / "x.gz"
    for content in (gzip.compress(b"Something else"), gzip.compress(b"smp_export: 1")[:6], b"\x1f\x8bnothing"):
        packed.write_bytes(content)
        assert "no export of SMP" in smp("import", packed, "--root", tmp_path / "copy").stderr
        assert "no export of SMP" in str(run(tmp_path / "copy", "import", "-", input=content, code=1).exception)
    assert not (tmp_path / "copy").exists()


def test_ids_of_the_source_that_changed_are_told_and_where_sessions_were(tmp_path: Path) -> None:
    """Of a folder that held several; of one session it is clear."""
    line = {"id": "m1", "type": "decision", "ts": "2026-01-11T10:00:00Z", "data": {"decision": "Tea", "by": "ann"}}
    (tmp_path / "from").mkdir()
    for name in ("one", "two"):
        (tmp_path / f"from/{name}.jsonl").write_text(json.dumps(line) + "\n")
    with (tmp_path / "from/two.jsonl").open("a") as more:
        more.write(json.dumps({**line, "data": {"decision": "Coffee"}}) + "\n")
    said = run(tmp_path / "root", "import", tmp_path / "from").stdout.splitlines()
    assert [row.split() for row in said[1:5]] == [
        ["SESSION", "BECAME", "NEW", "IDS", "FROM"], ["one", "new", "-", "one.jsonl"], ["two", "new", "1", "two.jsonl"],
        ["two:", "m1", "is", "m1-2"],
    ]  # fmt: skip
    found = json.loads(run(tmp_path / "root", "import", tmp_path / "from", "--json").stdout)["found"]
    assert found[0]["came_from"] == {"one": ["one.jsonl"], "two": ["two.jsonl"]}
    assert "FROM" not in run(tmp_path / "root", "import", tmp_path / "from/two.jsonl").stdout


@pytest.mark.parametrize(("command", "advice"), [
    (["export"], "one or more sessions, or --all"), (["export", "a", "--all"], "not both"),
    (["migrate"], "smp import PATH --migrate"), (["migrate", "a", "--all"], "not both"),
])  # fmt: skip
def test_a_command_that_does_not_say_which_is_told_what_to_say(root: Path, command: list[str], advice: str) -> None:
    assert advice in " ".join(run(root, *command, code=2).output.split())


@pytest.mark.parametrize("form", ["yaml", "json", "jsonl", "markdown"])
def test_how_many_entries_there_are_is_known_for_whoever_waits(
    root: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a terminal is told how long it will take, whatever the form."""
    run(root, "export", "--all", "--format", form, "-o", tmp_path / "x")
    monkeypatch.setattr("sys.stderr", type("Terminal", (), {"isatty": lambda self: True})())
    known = entries_in(look(str(tmp_path / "x"), None, extract=True))
    assert known is not None
    assert abs(known - sum(1 for _ in formats.read(io.BytesIO((tmp_path / "x").read_bytes()), form))) <= 2
