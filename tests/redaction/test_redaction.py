"""Secrets are redacted at every door: no file below the root holds a byte of one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemons import smp
from earlier import earlier_states
from hypothesis import given, settings
from hypothesis import strategies as st

from smp_client import Invalid, Memory, Options, Session, SMPError
from smp_client.change.holdings import holdings
from smp_client.disk import audit
from smp_client.disk.policy import POLICY_FILE, publish, published
from smp_client.model.priority import Policy
from smp_client.model.times import now
from smp_client.redaction.patterns import Pattern
from smp_client.redaction.redact import OFF, Redaction
from smp_client.small import SessionMemory

# In two pieces, so that this file holds no secret either.
TOKEN = "ghp_" + "q7Zr2Xk9Lm4Tv8Bn1Cw6Hy3Jd5Fs0Pg2Ra7E"
ACCESS_KEY = "AKIA" + "Q4RTX7ZN2KLMPW5V"
PASSWORD = "hunter2" + "xyz9"
SAYS = f"The build uses {TOKEN} for now."
SHOWN = "The build uses [redacted: github token] for now."
REDACTED = {"github_token": 1}


def places_of(root: Path, secret: str) -> list[str]:
    """Return the files below the root that hold these bytes, the index and its WAL included.

    Another process reads them: closing a file of SQLite's here would take away SQLite's locks.
    """
    grep = ["grep", "-rlaF", secret, "."]
    done = subprocess.run(grep, cwd=root, capture_output=True, text=True, check=False)
    # A file that goes meanwhile holds nothing; one that cannot be read may.
    unread = [line for line in done.stderr.splitlines() if "No such file" not in line]
    return sorted(line.removeprefix("./") for line in [*done.stdout.splitlines(), *unread])


def said_of(memory: Memory, session: Session) -> tuple[str, list[Any]]:
    """Everything that the memory returns, as one text, and every count of what was redacted."""
    records = [one.value for name in ("global", session.id) for one in holdings(memory, name)]
    return json.dumps(records), [one["redacted"] for one in records if "redacted" in one]


def _in_transaction(write: Callable[[Any], Any]) -> Callable[[Memory, Session], None]:
    def door(_: Memory, session: Session) -> None:
        with session.transaction() as transaction:
            write(transaction)

    return door


DOORS: dict[str, Callable[[Memory, Session], Any]] = {
    "turn": lambda _, s: s.add_turn("user", SAYS),
    "decision": lambda _, s: s.record_decision(SAYS, made_by="architect"),
    "finding": lambda _, s: s.record_finding("F", discovered_by="v", location={"at": ["a", SAYS]}),
    "relationship": lambda _, s: s.relate(
        s.add_turn("user", "a").id, s.add_turn("user", "b").id, "resolves", note=SAYS
    ),
    "speaker": lambda _, s: s.add_turn(SAYS, "hello"),
    "state": lambda _, s: s.save_agent_state("veritas", {"working_memory": {"notes": [SAYS]}}),
    "artifact": lambda _, s: s.save_artifact("report", f"# Report\n{SAYS}\n"),
    "field of an artifact": lambda _, s: s.save_artifact("report", "# Report", source=SAYS),
    "metadata": lambda _, s: s.update_metadata(context={"note": SAYS}),
    "topic of a session": lambda m, _: m.create_session(id="s1", topic=SAYS),
    "global preference": lambda m, _: m.everywhere.record_preference(SAYS),
    "pattern": lambda m, _: m.everywhere.record_pattern(SAYS),
    "profile": lambda m, _: m.everywhere.save_profile(notes=SAYS),
    "change": lambda _, s: s.update(s.record_decision("D", made_by="a").id, rationale=SAYS),
    "resolution": lambda _, s: s.resolve_finding(
        s.record_finding("F", discovered_by="a").id, resolved_by="user", action_taken=SAYS
    ),
    "small interface": lambda m, s: SessionMemory(s.id, m.root).add("preference", {
        "key": "note", "value": {"told": SAYS}}),
    "inputs of a party": lambda _, s: s.party().record_decision("D", inputs={"veritas": SAYS}),
    "turn in a transaction": _in_transaction(lambda tx: tx.add_turn("user", SAYS)),
    "state in a transaction": _in_transaction(lambda tx: tx.save_agent_state("v", {"n": SAYS})),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_a_secret_stays_outside_of_every_door(memory: Memory, tmp_path: Path, door: str) -> None:
    """With redaction off, each door leaves the token in a file, so this can fail."""
    off = Memory(tmp_path / "off", redaction=OFF)
    for one in (memory, off):
        session = one.create_session(id="s1") if "of a session" not in door else None
        DOORS[door](one, session)  # type: ignore[arg-type]
        assert one.search("build uses") is not None  # so that there is an index
    assert places_of(memory.root, TOKEN) == []
    text, counts = said_of(memory, memory.session("s1"))
    assert SHOWN in text
    assert counts
    assert all(one.keys() == REDACTED.keys() for one in counts)
    if door != "small interface":  # which makes a memory of its own
        assert places_of(off.root, TOKEN)
        assert said_of(off, off.session("s1"))[1] == []


def test_the_command_says_what_was_taken_out(memory: Memory) -> None:
    """On stderr, and in JSON; nothing where there was nothing. A text may come from stdin."""
    memory.create_session(id="s1")
    done = smp("add", "s1", "turn", "--root", memory.root, input=SAYS)
    assert (done.stdout, done.stderr) == ("turn-1\n", "note: redacted: github token.\n")
    said = smp("add", "s1", "turn", f"{SAYS} {ACCESS_KEY}", "--json", "--root", memory.root)
    assert said.stderr == "note: redacted: aws access key, github token.\n"
    assert json.loads(said.stdout)["redacted"] == {"aws_access_key": 1, "github_token": 1}
    assert smp("add", "s1", "turn", "Nothing.", "--root", memory.root).stderr == ""
    assert places_of(memory.root, TOKEN) == []


def test_a_record_says_how_many_of_which_kind_and_counts_add_up(session: Session) -> None:
    """In a file and back: a turn keeps it among its fields, other kinds as a field of their own."""
    given = f"{TOKEN} and {TOKEN}"
    made = session.record_decision(given, made_by="a", login={"password": PASSWORD})
    counts = {"github_token": 2, "password": 1}
    assert made.data["redacted"] == counts == session.get(made.id).data["redacted"]
    assert made.data["login"] == {"password": "[redacted: password]"}
    changed = session.update(made.id, rationale=ACCESS_KEY)
    assert changed.data["redacted"] == {"aws_access_key": 1, **counts}
    assert "redacted" in session.update(made.id, confidence="low").data
    turn = session.add_turn("user", SAYS)
    assert session.turns()[0].data["redacted"] == REDACTED == turn.data["redacted"]
    for _ in range(2):
        session.save_agent_state("veritas", {"notes": SAYS})
        session.update_metadata(note=SAYS)
    assert session.agent_state("veritas")["redacted"] == {"github_token": 2}
    assert session.metadata()["redacted"] == {"github_token": 2}
    assert earlier_states(session, "veritas")[0]["redacted"] == REDACTED


def test_a_tag_that_is_a_secret_becomes_a_word_that_may_be_a_tag(session: Session) -> None:
    made = session.record_decision("D", made_by="a", tags=["oauth", ACCESS_KEY], references=[TOKEN])
    assert made.tags == ["oauth", "redacted"]
    assert made.data["references"] == ["redacted"]
    assert made.data["redacted"] == {"aws_access_key": 1, "github_token": 1}


def test_a_reason_is_written_too(memory: Memory, session: Session) -> None:
    """That of a deletion into its bundle, of an archive into the summary, of a state into the
    metadata."""
    session.record_decision("D", made_by="a")
    session.delete(id="DEC-001", reason=SAYS)
    assert SHOWN in str(session.deleted())
    session.deactivate(SAYS)
    memory.archive_session(session.id, SAYS)
    assert places_of(memory.root, TOKEN) == []
    memory.restore_session(session.id)
    memory.delete_session(session.id, reason=SAYS)
    memory.undelete_session(session.id, SAYS)
    assert places_of(memory.root, TOKEN) == []


STANDING_FOR_ONE = (
    None, True, 12, "correct horse battery", "12", "***", "<password>", "${VAR}",
    "DB_PASSWORD", "os.environ", "required.", "Changed!", "hashed", "12+ chars", "argon2id",
    "/run/secrets/db", "vault:db", "session-2026-01-11-abc123",
)  # fmt: skip


@pytest.mark.parametrize("key", ["password", "db.password", "DB_PASSWORD", "userPassword"])
def test_a_value_under_a_key_that_names_a_password_is_one(key: str) -> None:
    """Sentences and values that stand for one stay; a word that is not about passwords goes."""
    value = {"db": {key: PASSWORD, "user": "app", "port": 5, "tls": [True, None]},
             "env": [{"name": key, "value": PASSWORD}]}  # fmt: skip
    new, kinds = Redaction().redacted_value(value)
    assert new["db"] == {**value["db"], key: "[redacted: password]"}
    assert new["env"] == [{"name": key, "value": "[redacted: password]"}]
    assert kinds == {"password": 2}
    assert Redaction().redacted_value(new) == (new, {})
    assert Redaction().redacted_value({key: "geheim"})[0] == {key: "[redacted: password]"}
    for word in STANDING_FOR_ONE:
        assert Redaction().redacted_value({"db": {key: word}}) == ({"db": {key: word}}, {}), word


def test_times_and_what_comes_twice_hide_no_secret() -> None:
    """A text that repeats is searched once, and a time not at all; a word may begin with a time."""
    at, token = "2026-01-11T14:00:00Z", "ghp_" + "a1B2c3D4e5" * 4
    assert Redaction().is_clean([{"timestamp": at, "text": at}] * 3)
    for text in (token, f"{at} {token}", f"{at}-{token}", f"{at}:{token}"):
        assert not Redaction().is_clean([{"timestamp": at}, *[{"timestamp": at, "text": text}] * 2])


# What is configured.


def test_personal_data_stay_unless_they_are_asked_for(memory: Memory) -> None:
    text = "Write to anna.b@example.com."
    assert memory.create_session(id="s1").add_turn("user", text).text == text
    asking = Memory(memory.root, redaction=Redaction(personal=("email",)))
    asked = asking.session("s1").add_turn("user", text)
    assert asked.text == "Write to [redacted: email]."
    assert asked.data["redacted"] == {"email": 1}
    with pytest.raises(Invalid, match="'shoe_size' must be one of email"):
        Redaction(personal=("shoe_size",))


def test_own_patterns_are_taken_out_under_their_name(memory: Memory) -> None:
    """`#` is a digit and `*` letters and digits; case does not matter, and words are whole."""
    redaction = Redaction(patterns=(("acme_badge", "acme-######"), ("case_name", "case *")))
    session = Memory(memory.root, redaction=redaction).create_session(id="s1")
    why = f"with case B77x, acme-1234567 and {TOKEN}"
    made = session.record_decision("ACME-123456", made_by="a", rationale=why)
    assert made.text == "[redacted: acme badge]"
    kept = "with [redacted: case name], acme-1234567 and [redacted: github token]"
    assert made.data["rationale"] == kept
    assert made.data["redacted"] == {"acme_badge": 1, "case_name": 1, "github_token": 1}


@pytest.mark.parametrize(("name", "pattern", "says"), [
    ("a", r"badge \d+", "'a' must be 3 to 100"), ("a", "x*", "'a' must be 3 to 100"),
    ("a", "** *", "'a' must be"), ("a", 3, "'a' must be"), ("A b", "xyz", "the name of a pattern"),
    ("a", "id-*7", "behind"),
])  # fmt: skip
def test_a_pattern_that_makes_no_sense_is_named(name: str, pattern: Any, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        Redaction(patterns=((name, pattern),))


# From 001 §7.3.
PRIVACY = {
    "patterns": [
        {"type": "email", "regex": r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b"},
        {"type": "api_key", "regex": r"\b[A-Za-z0-9]{32,}\b"},
        {"type": "password", "regex": r"password[\s:=]+[^\s]+"},
    ],
    "replacement": "[REDACTED]",
}


def configured(tmp_path: Path, redaction: dict[str, Any]) -> dict[str, str]:
    """Write the settings, and return the environment in which they hold."""
    file = tmp_path / "smp.yaml"
    file.write_text(json.dumps({"redaction": redaction}))
    return {"SMP_CONFIG": str(file), "PATH": ""}


def test_the_expressions_of_the_document_are_taken_literally(
    memory: Memory, tmp_path: Path
) -> None:
    memory.create_session(id="s1")
    environment = configured(tmp_path, PRIVACY)
    text = f"{'k' * 32} of anna@example.org, password\n geheim"
    done = smp("add", "s1", "turn", text, "--root", memory.root, env=environment)
    assert done.stderr == "note: redacted: api key, email, password.\n"
    [turn] = memory.session("s1").turns()
    assert turn.text == "[REDACTED] of [REDACTED], [REDACTED]"
    assert turn.data["redacted"] == {"api_key": 1, "email": 1, "password": 1}
    assert places_of(memory.root, "geheim") == []


def test_a_pattern_can_have_a_replacement_of_its_own(memory: Memory) -> None:
    """Published by a daemon it holds for every client; what was replaced is not searched again."""
    session = memory.create_session(id="s1")
    own: dict[str, str | dict[str, str]] = {
        "ticket": {"regex": r"(?i)t-\d{4,}", "replacement": "<a ticket>"},
        "opening": {"regex": r"^Dear \w+"},
        "badge": "b-##",
    }
    gone = Redaction(patterns=own, replacement="<<{kind}>>")
    publish(memory.tree, Options(redaction=gone))
    assert published(memory.tree).redaction == gone
    made = session.record_decision("Dear Anna, t-12345", made_by="a", rationale=f"B-17 {TOKEN}")
    assert made.text == "<<opening>>, <a ticket>"
    assert made.data["rationale"] == "<<badge>> <<github token>>"
    changed = session.update(made.id, confidence="low")
    assert (changed.text, changed.data["redacted"]) == (made.text, made.data["redacted"])


@pytest.mark.parametrize(("redaction", "says"), [
    ({"patterns": {"a": {"regex": "T-("}}}, "expression of pattern 'a' is wrong: missing )"),
    ({"patterns": {"a": {"regex": r"(?=x)y"}}}, "without look-around"),
    ({"patterns": {"a": {"regex": "x*"}}}, "fits an empty text"),
    ({"patterns": {"a": {"regexp": "x"}}}, "has the field 'regexp'"),
    ({"patterns": {"a": {"replacement": "[x]"}}}, "must have one of regex and pattern"),
    ({"patterns": [{"regex": "x"}]}, "the name of a pattern must be"),
    ({"patterns": ["x"]}, "pattern 1 must be a mapping"),
    ({"replacement": "gone"}, "begin and end with a sign"),
    ({"patterns": {"a": {"regex": "x", "replacement": "y"}}}, "in pattern 'a', a replacement"),
])  # fmt: skip
def test_a_wrong_expression_is_refused_with_its_place(
    tmp_path: Path, redaction: dict[str, Any], says: str
) -> None:
    done = smp("config", "check", env=configured(tmp_path, redaction))
    assert done.returncode == 5
    assert f"smp.yaml: redaction.{next(iter(redaction))}: " in done.stderr
    assert says in done.stderr


def test_an_expression_that_would_hang_another_engine_does_not(memory: Memory) -> None:
    """Each of these takes a backtracking engine longer than the world is old."""
    hang = [Pattern(f"p{number}", regex=regex) for number, regex in
            enumerate(["(a+)+$", "(a|a)*b", r"(\w+\s?)*!", "^(([a-z])+.)+[A-Z]([a-z])+$"])]
    session = Memory(memory.root, redaction=Redaction(patterns=hang)).create_session(id="s1")
    text = "a" * 50_000
    assert session.add_turn("user", f"{text}#").text == f"{text}#"
    assert session.add_turn("user", text).text == "[redacted: p0]"


@settings(deadline=None)
@given(
    st.sampled_from([r"\w+", "..", "[a-d]{2}", "p.*", r"\S+ \S+", "red", "[^x]"]),
    st.sampled_from(["[REDACTED]", "***", "<{kind}>", "-ab-", "[redacted: {kind}]"]),
    st.text("abpx-*<>[] redct\n", max_size=30),
)
def test_redacting_comes_to_an_end(regex: str, replacement: str, text: str) -> None:
    """Whatever the replacement looks like to the pattern: what is redacted stays as it is."""
    redaction = Redaction(patterns=[Pattern("p", regex=regex)], replacement=replacement)
    once, _ = redaction.redacted_value(text)
    assert redaction.redacted_value(once) == (once, {})
    assert len(once) <= (len(text) + 1) * 20


def test_what_is_published_holds_for_every_other_process(memory: Memory) -> None:
    """Also for one that was open already; a memory that is given its own uses that."""
    session = memory.create_session(id="s1")
    assert session.record_decision("badge 77", made_by="a").text == "badge 77"
    wanted = Redaction(personal=("email",), patterns=(("badge", "badge ##"),))
    publish(memory.tree, Options(redaction=wanted))
    made = session.record_decision("badge 77 of a@example.com", made_by="a")
    assert made.text == "[redacted: badge] of [redacted: email]"
    assert smp("add", "s1", "turn", "badge 78", "--root", memory.root).returncode == 0
    assert session.turns(1)[0].text == "[redacted: badge]"
    own = Memory(memory.root, redaction=OFF).session("s1")
    assert own.add_turn("user", "badge 77").text == "badge 77"


SAID = {"enabled": False, "personal": [], "patterns": {}, "unlocked_edits": "report"}


@pytest.mark.parametrize("said", [
    False, SAID, SAID | {"personal": [[]]}, SAID | {"patterns": []}, SAID | {"patterns": {"a": "x*"}},
])  # fmt: skip
def test_a_policy_does_not_turn_it_off(memory: Memory, said: object) -> None:
    """Neither one that makes no sense nor one that says it plainly: a policy can only add."""
    session = memory.create_session(id="s1")
    publish(memory.tree, Options(redaction=Redaction()))
    file = memory.root / POLICY_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"redaction": said}))
    assert published(memory.tree).redaction == Redaction()
    assert session.add_turn("user", SAYS).text == SHOWN


def test_a_policy_with_other_numbers_still_redacts(memory: Memory) -> None:
    """A client of another version may not know a rule of decay."""
    session = memory.create_session(id="s1")
    odd = Options(policy=Policy(rules={}), redaction=Redaction(personal=("email",)))
    publish(memory.tree, odd)
    assert not published(memory.tree).is_sound
    assert session.add_turn("user", "of a@example.com").text == "of [redacted: email]"


def test_the_command_takes_what_is_configured_also_without_a_daemon(
    memory: Memory, tmp_path: Path
) -> None:
    memory.create_session(id="s1")
    file = tmp_path / "smp.yaml"
    environment = {"SMP_CONFIG": str(file), "PATH": ""}
    file.write_text("redaction:\n  patterns:\n    badge: 'badge ##'\n")
    done = smp("add", "s1", "turn", "badge 77", "--root", memory.root, env=environment)
    assert done.returncode == 0, done.stderr
    assert memory.session("s1").turns()[0].text == "[redacted: badge]"
    file.write_text("redaction:\n  patterns:\n    badge: 'a+b'\n")
    assert "pattern 'badge' must be" in smp("config", "check", env=environment).stderr


# A secret given as a name, a key, an id or a value that is wrong: in no file, log or message.

Call = Callable[[Memory, Session], Any]

WRONG: dict[str, dict[str, Any]] = {
    "a severity": {"severity": TOKEN}, "a list as a tag": {"tags": [[TOKEN]]},
    "a timestamp": {"timestamp": TOKEN}, "a key that is no text": {"note": {(TOKEN,): 1}},
    "a field": {TOKEN: object()}, "a mapping as a tag": {"tags": [{"password": TOKEN}]},
    "a key": {"map": {TOKEN: 1}},
}  # fmt: skip
REFUSED: dict[str, Call] = {
    "a user": lambda memory, _: memory.create_session(user=TOKEN),
    "an agent": lambda memory, _: memory.create_session(agents=[TOKEN]),
    "a key of a state": lambda _, session: session.save_agent_state("v", {"a": [{TOKEN: 1}]}),
    "the state of an agent": lambda _, session: session.save_agent_state(TOKEN, {"a": 1}),
    "an artifact": lambda _, session: session.save_artifact(TOKEN, "text"),
    "a session to read": lambda memory, _: memory.session(TOKEN),
    "a session to make": lambda memory, _: memory.create_session(id=TOKEN),
    "a session to delete from": lambda memory, _: memory.privacy.delete(TOKEN, "A", reason="r"),
    "a session to purge": lambda memory, _: memory.privacy.purge_now(TOKEN),
    "an id to get": lambda _, session: session.get(TOKEN),
    "an id to delete": lambda _, session: session.delete(TOKEN, reason="r"),
    "a batch": lambda memory, _: memory.privacy.restore_batch(TOKEN),
    "a time": lambda _, session: session.delete(since=TOKEN, reason="r"),
    "a field of a question": lambda _, session: session.query({TOKEN: 1}),
    **{name: lambda _, session, wrong=wrong: session.record_finding("F", discovered_by="a", **wrong)
       for name, wrong in WRONG.items()},
}  # fmt: skip


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_leaves_nothing_and_is_not_quoted(
    memory: Memory, session: Session, call: Call
) -> None:
    """Nothing can stand in the place of a name, and keys are never changed."""
    session.record_decision("any", made_by="a")
    with pytest.raises(SMPError) as refused:
        call(memory, session)
    said = (str(refused.value), repr(refused.value), *getattr(refused.value, "problems", ()))
    assert not [text for text in said if TOKEN in text]
    assert [path for path in memory.root.rglob("*") if TOKEN in path.name] == []
    assert places_of(memory.root, TOKEN) == []


def test_who_did_it_is_in_the_audit_log_without_a_secret(memory: Memory, session: Session) -> None:
    """In every action, of memories and of sessions, and in any other fact."""
    session.record_decision("any", made_by="a")
    session.delete("DEC-001", reason="r", deleted_by=TOKEN)
    session.restore("DEC-001", by=f"me with {TOKEN}")
    memory.delete_session("s1", reason="r", deleted_by=TOKEN)
    memory.privacy.purge_now("s1", by=TOKEN)
    audit.note(memory.tree, "export", at=now(), by="a", to=f"/tmp/{TOKEN}", ids=("DEC-001", TOKEN))
    lines = [json.loads(line) for line in (memory.root / audit.FILE).read_text().splitlines()]
    (restored,) = [line["by"] for line in lines if line["action"] == "restore"]
    assert restored == "me with [redacted: github token]"
    assert lines[-1]["ids"] == ["DEC-001", "[redacted: github token]"]
    assert places_of(memory.root, TOKEN) == []


GIVEN: dict[str, tuple[str, ...]] = {
    "a turn": ("add", "s1", "decision", "x", "--by", "a", "--turn", TOKEN),
    "a session": ("add", TOKEN, "decision", "x"),
    "a command": (TOKEN,),
    "an id": ("delete", "s1", TOKEN, "--reason", "r"),
    "a reason": ("delete", "s1", "DEC-001", "--reason", f"it has {TOKEN}", "--by", TOKEN),
}


@pytest.mark.parametrize("arguments", GIVEN.values(), ids=GIVEN)
def test_the_command_does_not_repeat_a_secret(
    memory: Memory, session: Session, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """In no error, and in no table of what it did: a reason is shown as it is kept."""
    session.record_decision("any", made_by="a")
    done = smp(*arguments, "--root", memory.root, cwd=tmp_path)
    assert TOKEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if "--reason" in arguments and TOKEN not in arguments[:4]:
        assert "[redacted: github token]" in done.stdout
    else:
        assert "[redacted" in done.stderr or "looks like a secret" in done.stderr
        assert done.returncode in (1, 2)
    assert places_of(memory.root, TOKEN) == []
