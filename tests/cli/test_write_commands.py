"""`smp new`, `smp add` and `smp sessions`, as people, scripts and agents call them; and what every table and text printed obeys."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from commands import HOSTILE, completed, on_a_terminal
from daemons import smp

from smp_client import Memory, Session
from smp_daemon.cli.output import cut, harmless, one_line, short_size, short_time, width


def add(session: Session, *arguments: object, said: str = "", code: int = 0, **options: Any) -> str:
    """What `smp add` prints for the session; where it is to fail, what it says."""
    root = session.scope.tree.root
    done = smp("add", "--root", root, session.id, *arguments, input=said, **options)
    assert done.returncode == code, done.stderr
    return done.stderr.strip() if code else done.stdout.strip()


def test_new_prints_the_id_and_nothing_else(tmp_path: Path) -> None:
    """So that `S=$(smp new)` works; the tree is made on the way."""
    done = smp("new", "--root", tmp_path / "s", "--user", "u", "--project", "P", "--phase", "review", "--topic", "auth",
               "--tag", "a", "--tag", "b", "--agent", "veritas", "--quota-bytes", 5000)  # fmt: skip
    session = Memory(tmp_path / "s").session(done.stdout.removesuffix("\n"))
    metadata: Any = session.metadata()
    assert metadata["context"] == {"project_name": "P", "project_phase": "review", "primary_topic": "auth", "tags": ["a", "b"]}
    assert metadata["participants"]["user_id"] == "u"
    assert [agent["agent_id"] for agent in metadata["participants"]["agents"]] == ["veritas"]
    assert session.quota_bytes() == 5000


def test_new_takes_the_configured_quota_and_a_given_id(tmp_path: Path) -> None:
    (tmp_path / "smp.yaml").write_text("quota_bytes: 123456\n")
    environment = {**os.environ, "SMP_CONFIG": str(tmp_path / "smp.yaml")}
    done = smp("new", "--root", tmp_path / "s", "--id", "mine", "--json", env=environment)
    assert json.loads(done.stdout) == {"id": "mine", "root": str(tmp_path / "s"), "quota_bytes": 123456, "redacted": {}}
    again = smp("new", "--root", tmp_path / "s", "--id", "mine")
    assert again.returncode == 1
    assert again.stderr == "smp: There is a session 'mine' in active/ already. Choose another id.\n"


def test_every_kind_is_written_as_the_library_writes_it(session: Session) -> None:
    """The same fields, in the same order where a person looks for them, but for what was given on top."""
    assert add(session, "turn", "Hello") == "turn-1"
    assert add(session, "decision", "Use OAuth", "--by", "architect", "--rationale", "SSO", "--tag", "security") == "DEC-001"
    assert add(session, "finding", "No MFA", "--by", "veritas", "--severity", "critical", "--turn", 1) == "FIND-001"
    assert add(session, "preference", "MFA", "--topic", "mfa", "--confidence", "explicit") == "PREF-001"
    assert add(session, "learning", "Ask first", "--by", "veritas", "--ref", "FIND-001") == "LEARN-001"
    assert add(session, "relationship", "DEC-001", "FIND-001", "addresses", "--by", "user") == "REL-001"
    assert add(session, "turn", "And?", "--by", "veritas", "--ref", "DEC-001", "--ref", "FIND-001", "--tag", "mfa") == "turn-2"
    assert add(session, "artifact", "report-1", "--by", "veritas", "--tag", "mfa", said="# Report\n") == "report-1"
    assert add(session, "state", "veritas", "--field", "mood=calm", said="ignored") == "veritas"
    assert add(session, "state", "veritas", "-", said='{"current_context": {"focus": "auth"}}') == "veritas"

    same = session.scope.tree.root / "../library"
    other = Memory(same).create_session(id=session.id)
    other.add_turn("user", "Hello")
    other.record_decision("Use OAuth", made_by="architect", rationale="SSO", tags=["security"])
    other.record_finding("No MFA", discovered_by="veritas", severity="critical", turn_ref=1)
    other.record_preference("MFA", topic="mfa", confidence="explicit")
    other.record_learning("Ask first", learned_by="veritas", references=["FIND-001"])
    other.relate("DEC-001", "FIND-001", "addresses", created_by="user")
    other.add_turn("veritas", "And?", memory_refs=["DEC-001", "FIND-001"], tags=["mfa"])
    for kind in session.kinds:
        ours, theirs = session.records(kind.name), other.records(kind.name)
        assert [_lasting(record.data) for record in ours] == [_lasting(record.data) for record in theirs]
    assert list(session.get("DEC-001").data) == list(other.get("DEC-001").data)
    assert session.artifact("report-1").text == "# Report\n"
    assert session.artifact("report-1").data["created_by"] == "veritas"
    assert session.agent_state("veritas")["mood"] == "calm"
    assert session.agent_state("veritas")["current_context"] == {"focus": "auth"}


def _lasting(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in ("timestamp", "decay")}


def test_global_holds_preferences_and_patterns(memory: Memory) -> None:
    """And makes the tree, as the library does."""
    assert smp("add", "--root", memory.root, "global", "pattern", "P", "--by", "veritas").stdout == "PAT-001\n"
    assert smp("add", "--root", memory.root, "global", "preference", "Tabs").stdout == "GPREF-001\n"
    assert memory.everywhere.get("PAT-001").data["learned_by"] == "veritas"
    assert memory.everywhere.get("GPREF-001").data["confidence"] == "inferred"
    refused = smp("add", "--root", memory.root, "global", "decision", "D", "--by", "a").stderr
    assert refused == ("smp: global holds preference, pattern, not 'decision'; a decision belongs to a session."
                       " Nothing was written; correct the values and try again.\n")  # fmt: skip


def test_options_say_what_further_is_to_be_known(session: Session) -> None:
    """Values are numbers, lists and truths where they look like that in YAML, and text in every other case."""
    fields = ["n=3", "share=0.5", "yes=true", "list=[a, 2]", "deep.er.x=1", "deep.y=see: this # 5", "quoted='7'", "eq=a=b", "no=no"]
    given = [part for each in fields for part in ("--field", each)]
    found = json.loads(add(session, "decision", "D", "--by", "a", "--pin", "--timestamp", "2026-01-11T14:30:00+01:00",
                           "--json", *given))  # fmt: skip
    assert found["id"] == "DEC-001"
    assert (found["session"], found["type"], found["text"], found["tags"]) == (session.id, "decision", "D", [])
    assert found["timestamp"] == "2026-01-11T13:30:00Z"
    expected = {"n": 3, "share": 0.5, "yes": True, "list": ["a", 2], "deep": {"er": {"x": 1}, "y": "see: this # 5"},
                "quoted": "7", "eq": "a=b", "no": "no", "pinned": True}  # fmt: skip
    assert expected.items() <= found["data"].items()
    assert session.get("DEC-001").pinned


def test_the_text_comes_from_where_it_is_said(session: Session, tmp_path: Path) -> None:
    """A file, stdin by `-`, or stdin because there is no other text; one line end is not part of what is said."""
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbffrom a file\r\n")
    add(session, "turn", "--file", tmp_path / "text")
    add(session, "turn", "-", said="two\nlines\n\n")
    add(session, "turn", said="日本語\n")
    add(session, "turn", "--", "-- not an option")
    assert [turn.text for turn in session.turns()] == ["from a file", "two\nlines\n", "日本語", "-- not an option"]


def test_yaml_is_written_all_or_nothing(session: Session) -> None:
    """Each record may say what it is; the options hold for those that do not say otherwise; every mistake is named."""
    records = """
    - {type: finding, finding: F, severity: high}
    - {text: D, made_by: architect, tags: [x]}
    - {type: turn, turn_type: question, content: Q}
    - {type: relationship, source: DEC-001, target: FIND-001, relationship: resolves}
    - {type: state, agent_id: veritas, mood: calm}
    - {type: artifact, id: report-1, content: "# R"}
    """
    plain = [line for line in records.splitlines() if "state" not in line]
    ids = add(session, "decision", "--yaml", "--by", "veritas", said="\n".join(plain)).split()
    assert ids == ["FIND-001", "DEC-001", "turn-1", "REL-001", "report-1"]
    assert add(session, "--yaml", said=records.splitlines()[5]) == "veritas"
    assert session.get("FIND-001").data["discovered_by"] == "veritas"
    assert session.get("DEC-001").data["made_by"] == "architect"
    assert session.get("turn-1").data["type"] == "question"
    before = {path: path.read_bytes() for path in (session.scope.tree.root / "active").rglob("*") if path.is_file()}
    bad = json.dumps([{"type": "finding", "finding": "F"}, {"type": "decision", "decision": "D", "made_by": "a", "tags": ["a b"]},
                      {"type": "thing"}, 5, {"decision": "D"}, {"type": "artifact"}])  # fmt: skip
    said = add(session, "--yaml", said=bad, code=2)
    for problem in (
        "record 1: 'discovered_by' is missing: say who with --by", "record 2: tag 'a b'", "record 3: a session holds",
        "record 4: it must be a mapping", "record 5: it must say its 'type'", "record 6: 'id' of an artifact",
    ):  # fmt: skip
        assert problem in said
    assert {path: path.read_bytes() for path in (session.scope.tree.root / "active").rglob("*") if path.is_file()} == before
    # What only the write itself can refuse takes the others with it as well.
    assert "nothing was written" in add(session, "turn", "--yaml", said=json.dumps([{"text": "x" * 1_000_000}] * 12), code=1)
    assert [turn.text for turn in session.turns()] == ["Q"]


@pytest.mark.parametrize(
    ("arguments", "said", "code", "problem"),
    [
        (["decision", "D"], "", 2, "smp: 'made_by' is missing: say who with --by."),
        (["finding", "F", "--by", "a", "--severity", "bad"], "", 2, "smp: 'severity' must be one of critical, high,"),
        (["turn", "T", "--timestamp", "yesterday"], "", 2, "smp: 'timestamp' is not an ISO 8601 time"),
        (["artifact", "a", "T", "--timestamp", "yesterday"], "", 2, "smp: timestamp 'yesterday' must be an ISO 8601 time"),
        (["artifact", "../a", "T"], "", 2, "smp: artifact '../a' must be"),
        (["artifact", "a", "T", "--field", "self=1"], "", 2, "smp: an artifact cannot have a field 'self'."),
        (["turn", "T", "--ref", "a b"], "", 2, "smp: memory id 'a b' must be"),
        (["turn", "T", "--field", "x"], "", 2, "smp: field 'x' must be NAME=VALUE."),
        (["turn", "T", "--field", "x=1", "--field", "x.y=1"], "", 2, "smp: field 'x.y' is given twice"),
        (["turn", "T", "--field", "x=[1"], "", 2, "smp: field 'x' begins like a list or mapping and is none"),
        (["state", "veritas"], "[1]", 2, "smp: a state must be a mapping in YAML or JSON."),
        (["state", "veritas", "--tag", "x"], "a: 1", 2, "smp: a state has no options but --field"),
        (["pattern", "P"], "", 2, "a pattern belongs to global: smp add global."),
        (["--yaml"], "a: [", 2, "smp: the YAML cannot be read, line"),
        (["turn"], "", 2, "Error: There is no text: give it behind the kind, with --file, or through stdin."),
        (["turn", "two", "words"], "", 2, "Error: There is more than one text: put it in quotes"),
        (["relationship", "DEC-001"], "", 2, "Error: Behind 'relationship' there must be SOURCE TARGET RELATION."),
        (["relationship", "A", "B", "r", "more"], "", 2, "Error: There is more than one text"),
        ([], "", 2, "Error: Say the kind behind the session: turn, decision,"),
        (["turn", "- item"], "", 2, "Words that begin with a dash go behind --."),
        (["turn", "-----BEGIN"], "", 2, "Words that begin with a dash go behind --"),
        (["turn", "T", "--tags", "x"], "", 2, "Error: No such option '--tags'"),
        (["turn", "--file", "/nowhere"], "", 2, "'/nowhere': No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(session: Session, arguments: list[str], said: str, code: int, problem: str) -> None:
    """And nothing is written."""
    assert problem in add(session, *arguments, said=said, code=code)
    assert not [record for kind in session.kinds for record in session.records(kind.name)]
    assert not session.artifacts() + session.agent_states()


def test_bytes_that_are_no_text_are_refused(session: Session, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    assert add(session, "turn", "--file", tmp_path / "latin", code=2).startswith("smp: the text is not UTF-8 at byte 3.")
    assert "lone surrogate" in add(session, "turn", b"caf\xe9".decode(errors="surrogateescape"), code=2)


def test_sessions_are_listed_the_last_one_first(memory: Memory, session: Session) -> None:
    """Also those whose metadata cannot be read or are of a later version; nothing is cut where it is not shown on a terminal."""
    topic = "a topic that is much too long for a line " * 5
    memory.create_session(id="broken")
    (memory.root / "active/broken/metadata.yaml").write_text("session: [")
    memory.create_session(id="newer")
    (memory.root / "active/newer/metadata.yaml").write_text("version: 99\nsession: {}\n")
    memory.create_session(id="long", project="P", topic=topic).add_turn("user", "hello")
    found = json.loads(smp("sessions", "--root", memory.root, "--json").stdout)
    # Of the last two nothing tells when they were used.
    assert [each["id"] for each in found] == ["long", "s1", "broken", "newer"]
    assert [each["state"] for each in found] == ["active", "active", "unreadable", "unreadable"]
    assert [each["memories"] for each in found] == [1, 0, 0, 0]
    assert found[0]["topic"] == topic
    assert (found[1]["project"], found[1]["topic"]) == ("E-Commerce", "authentication")
    size = session.size()
    assert (found[1]["total_bytes"], found[1]["quota_bytes"]) == (size.total_bytes, size.quota_bytes)
    lines = smp("sessions", "--root", memory.root, "--state", "active").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "long", "s1"]
    assert topic.strip() in lines[1]
    assert not re.search(r"\s$|\t|\x1b|…", "\n".join(lines), re.MULTILINE)
    assert lines[0].index("PROJECT") == lines[1].index("P  ") == lines[2].index("E-Commerce")
    none = smp("sessions", "--root", memory.root, "--state", "idle")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "No sessions are idle.\n")


def test_a_table_fits_the_terminal_and_no_memory_drives_it(memory: Memory) -> None:
    """Colours are the command's own; what the data hold is written out. NO_COLOR takes the colours away."""
    memory.create_session(id="hostile", project="日本語のプロジェクト" * 5, topic=HOSTILE)
    memory.create_session(id="plain", project="P", topic="👩‍💻 emoji ❤️ and text that goes on and on and on")
    shown = on_a_terminal("sessions", "--root", memory.root, columns=100)
    assert on_a_terminal("sessions", "--root", memory.root, columns=100, forked=False) == shown
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", bare)
    assert all(width(line) <= 100 for line in bare.splitlines())
    assert len(bare.splitlines()) == 3
    assert "\x1b" not in on_a_terminal("sessions", "--root", memory.root, columns=100, NO_COLOR="1")
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", on_a_terminal("sessions", "--root", memory.root, columns=30))
    assert all(width(line) <= 30 for line in narrow.splitlines())
    piped = smp("sessions", "--root", memory.root).stdout
    assert one_line(HOSTILE) in piped
    assert "\x1b" not in piped
    as_json = on_a_terminal("sessions", "--root", memory.root, "--json", columns=100)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", as_json)
    assert HOSTILE in [each["topic"] for each in json.loads(as_json)]


def test_text_is_made_harmless_and_measured() -> None:
    assert one_line(HOSTILE) == r"\x1b]0;owned\x07\x1b[31mred\x1b[2J\x9b1m \u202egnp.exe over next tab\x7f"
    assert harmless("a\r\nb\tc\rd") == "a\nb   c\\x0dd"
    assert [width(text) for text in ("abc", "日本", "e\u0301", "❤\ufe0f", "👍")] == [3, 4, 1, 2, 2]
    assert [cut("日本語", columns) for columns in (6, 5, 4, 1)] == ["日本語", "日本…", "日…", "…"]
    assert len(cut("e" + "\u0301" * 10_000, 10)) <= 81
    assert short_time("2026-01-11T14:30:59+02:00") == "2026-01-11 12:30"
    assert [short_time(None), short_time("soon\x1b")] == ["", "soon\\x1b"]
    assert [short_size(size) for size in (1023, 1536, 10 * 1024**2, 3 * 1024**3)] == ["1023 B", "1.5 KB", "10.0 MB", "3.0 GB"]


def test_an_encoding_without_the_characters_is_no_failure(memory: Memory) -> None:
    memory.create_session(id="s", topic="日本")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    assert r"\u65e5\u672c" in smp("sessions", "--root", memory.root, env=environment).stdout
    assert json.loads(smp("sessions", "--root", memory.root, "--json", env=environment).stdout)[0]["topic"] == "日本"


def test_json_is_json_also_for_numbers_that_json_has_not(session: Session) -> None:
    found = json.loads(add(session, "turn", "T", "--field", "x=.nan", "--json"), parse_constant=lambda name: pytest.fail(name))
    assert found["data"]["x"] is None


def test_the_shell_completes_commands_kinds_and_sessions(memory: Memory, tmp_path: Path) -> None:
    for name in ("session-a", "session-b", "other"):
        memory.create_session(id=name)
    assert completed("smp ses", memory.root) == ["sessions"]
    assert completed("smp add session-", memory.root) == ["session-a", "session-b"]
    assert completed("smp add g", memory.root) == ["global"]
    assert completed("smp add session-a de", memory.root) == ["decision"]
    memory.session("session-b").record_finding("Slow", discovered_by="a", severity="low")  # which nobody has indexed yet
    assert completed("smp delete session-b ", memory.root) == ["FIND-001"]
    assert completed("smp delete session-a --tag x ", memory.root) == []
    assert completed(f"smp add --root {memory.root} o", tmp_path / "nowhere") == ["other"]
    assert completed("smp add s", tmp_path / "nowhere") == []
    (tmp_path / "file").touch()
    assert completed("smp add s", tmp_path / "file") == []


