"""A wrong call names the right one in a sentence, has an exit code, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import content, run, stocked
from daemons import smp
from once import copied

from smp_client import Memory

# A command, its exit code, and a part of its sentence.
WRONG = """
add s1 decision D                              | 2 | 'made_by' is missing: say who with --by.
add s1 turn T --timestamp yesterday            | 2 | 'timestamp' is not an ISO 8601 time
add s1 artifact ../a T                         | 2 | artifact '../a' must be
add s1 artifact a T --field self=1             | 2 | a field 'self' cannot be given.
add s1 turn T --field x                        | 2 | field 'x' must be NAME=VALUE.
add s1 turn T --field x=1 --field x.y=1        | 2 | field 'x.y' is given twice
add s1 state v '[1]'                           | 2 | a state must be a mapping in YAML or JSON.
add s1 pattern P                               | 2 | a session holds turn, decision, finding
add s1 turn                                    | 2 | There is no text: give it behind the kind
add s1 artifact                                | 2 | there must be NAME.
pin s1 DEC-1                                   | 1 | There is no memory 'DEC-1' in s1. Did you mean DEC-001?
show s1 FND-001                                | 1 | Did you mean FIND-001?
show DEC-987                                   | 1 | There is no memory 'DEC-987' in
serach oauth                                   | 2 | There is no command 'serach' (did you mean 'search'?).
remve s1                                       | 2 | (did you mean 'remove'?)
add s1 decison D --by a                        | 2 | (did you mean 'decision'?)
search oauth --type decisoin                   | 2 | (did you mean 'decision'?)
search oauth --limt 3                          | 2 | Did you mean '--limit'?
search oauth --sesion s1                       | 2 | '--sesion'. Did you mean '--session'?
search oauth --colour red                      | 2 | No such option '--colour'.
show s1 DEC-987 --history                      | 1 | There is no memory 'DEC-987' in s1.
update s1 DEC-001 --field status=rejcted       | 2 | no status 'rejcted' (did you mean 'rejected'?).
update s1 DEC-001 --field status=supersedde    | 2 | (did you mean 'superseded'?)
add s1 finding F --by a --field status=opne    | 2 | (did you mean 'open'?)
resolve s1 DEC-001 --by dev --action x         | 2 | only a finding can be resolved.
update s1 DEC-001                              | 2 | Say what changes: --text TEXT or --field
update s1 turn-1 --text x                      | 2 | 'content' of a turn cannot be changed.
relate global GPREF-001 GPREF-002 led_to       | 2 | relationships belong to a session
supersede s1 DEC-001 --by DEC-001              | 2 | DEC-001 cannot be related to itself.
context --project x --all                      | 2 | Give either --project or --all.
archive                                        | 2 | Give a session, or --due; not both.
compact                                        | 2 | Give a session, or --all; not both.
delete --reason r                              | 2 | Give a session, or --all; not both.
delete --all --reason r                        | 2 | Say which memories
delete s1 DEC-001 --text xyz --reason r        | 2 | say which memories: their ids, or what they
restore                                        | 2 | Say what: SESSION, SESSION ID, or --batch
restore s1 DEC-001                             | 1 | cannot be restored: it is not deleted
purge s1                                       | 2 | --now goes with SESSION, ID or --batch
purge s1 DEC-001 --batch b --now               | 2 | Give ids or --batch, not both.
purge global --now                             | 2 | Of global, give ids.
anonymize s1 DEC-009                           | 1 | 'DEC-009'
"""
CASES = [[part.strip() for part in line.split(" | ")] for line in WRONG.strip().splitlines()]


@pytest.mark.parametrize(("line", "code", "sentence"), CASES, ids=[line for line, *_ in CASES])
def test_a_wrong_call_is_one_sentence(tmp_path: Path, line: str, code: str, sentence: str) -> None:
    root = copied(stocked, tmp_path / "sessions")
    before = content(root)
    said = run(root, line, code=int(code)).splitlines()
    assert sentence in said[-1]
    assert len(said) == 1 or said[0].startswith("Usage: smp ")
    assert content(root) == before


READING = (
    "search oauth", "sessions", "timeline", "topics", "show latest", "show --all-about xyz",
    "context --session latest", "check", "sync", "reindex", "decay",
    "compact --all", "archive --due", "export --all", "export --all -o out", "restore --list",
    "purge", "delete --all --text x --reason y", "anonymize latest", "add latest turn T", "stats",
)  # fmt: skip
MAKING = ("new", "init", "add global pattern P --by a", "import log.md", "import log.md --migrate")


def test_a_directory_that_is_no_tree_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Above all the project itself: nothing is found or written there, and its tree is named."""
    project, nothing, nowhere = (tmp_path / name for name in ("project", "nothing", "nowhere"))
    (tmp_path / "log.md").write_text("User: Hello\n\nAssistant: Good day\n\nUser: And?\n")
    nothing.mkdir()
    Memory(project / ".bmad/sessions").create()
    before = sorted(tmp_path.rglob("*"))
    advice = {project: f"Name {project}/.bmad/sessions as the root."}
    for root, lines in ((project, (*READING, *MAKING)), (nothing, READING), (nowhere, READING)):
        otherwise = "Make it with smp init, or name another root."
        for line in lines:
            said = run(root, line, code=1, cwd=tmp_path)
            expected = f"smp: There is no memory at {root}. {advice.get(root, otherwise)}\n"
            assert said == expected, line
            assert sorted(tmp_path.rglob("*")) == before, line
    assert advice[project] in smp("run", "--root", project).stderr


def test_a_mistyped_session_is_named(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.create_session(id="login-review")
    said = run(tmp_path, "add login-revew decision D --by a", code=1)
    assert "Did you mean login-review?" in said
