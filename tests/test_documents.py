"""The README, the pages of docs/, FORMAT.md and DESIGN.md say what the code does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from daemons import smp
from pages import outputs

from smp_client import Memory
from smp_client.disk.policy import DEFAULT_QUOTA_BYTES
from smp_client.disk.session_files import new_metadata
from smp_client.disk.tree import DIRECTORY_MODE, FILE_MODE
from smp_client.model import layout
from smp_client.model.record import CONTENT_CAP_BYTES, GLOBAL_KINDS, REVISION, SESSION_KINDS, TURN
from smp_client.model.times import now
from smp_client.text.mapping import load_mapping
from smp_client.text.markdown import Conversation
from smp_client.text.yaml_list import parse
from smp_daemon.cli import COMMANDS, manual
from smp_daemon.cli import smp as program

TOP = Path(__file__).parent.parent
README = (TOP / "README.md").read_text()
FORMAT = (TOP / "smp_client/FORMAT.md").read_text()
DESIGN = (TOP / "smp_daemon/DESIGN.md").read_text()
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
# As `wc -w` counts them, code included. Pages of facts are as long as the truth.
WORDS = {"README": 1000}
WORDS_OF_A_PAGE = 1400
PAGES_OF_FACTS = {"limits", "benchmarks", "operate", "reference"}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    """Each runs from top to bottom; `python tests/pages.py FILE` writes its outputs anew."""
    directory = tmp_path / "page"
    directory.mkdir()
    wrong = [output for output in outputs(page.read_text(), directory) if not output.agrees()]
    assert not wrong, "\n".join(
        f"shown:\n{output.shown}\nprinted:\n{output.real}" for output in wrong
    )


def test_the_instructions_for_agents_work_in_a_new_project(tmp_path: Path) -> None:
    """An agent that follows them is told the next time what it wrote."""
    (lines,) = (block for block in blocks(README, "text") if block.startswith("## Memory"))
    assert lines in (TOP / "docs/agents.md").read_text()
    said = ""
    for words in ("first", "second"):
        session = ""
        commands = re.findall(r"`(smp [^`]+)`", lines)
        for text, command in zip(("", "", "tea", "milk", "sugar"), commands, strict=True):
            given = {"TASK": words, "TEXT": f"{words}: {text}", "SESSION": session}
            for name, value in given.items():
                command = command.replace(name, value)
            done = smp(*shlex.split(command)[1:], cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            session = session or done.stdout.strip()
            said = done.stdout if "context" in command else said
    assert set(re.findall(r"first: (\w+)", said)) == {"tea", "milk", "sugar"}


def test_one_page_names_every_command() -> None:
    """Each command, those of a group included, has its row in the table; no other has one."""
    context = click.Context(program)
    real = set()
    for name in COMMANDS:
        command = program.get_command(context, name)
        assert command is not None
        is_group = isinstance(command, click.Group)
        real |= {f"{name} {inner}" for inner in command.commands} if is_group else {name}
    table = (TOP / "docs/operate.md").read_text()
    assert {*re.findall(r"^\| `smp ([a-z ]+)` \|", table, re.MULTILINE)} == real


def test_pages_are_short_and_their_links_lead_somewhere() -> None:
    for page in PAGES:
        if page.stem not in PAGES_OF_FACTS:
            most = WORDS.get(page.stem, WORDS_OF_A_PAGE)
            assert len(page.read_text().split()) <= most, page
    for document in (*PAGES, TOP / "smp_client/FORMAT.md", TOP / "smp_daemon/DESIGN.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (document.parent / link).exists(), (document, link)


def test_format_names_every_record_file_with_its_list_and_required_fields() -> None:
    rows = dict(re.findall(r"^\| `([\w.-]+\.yaml)` \| (.*) \|$", FORMAT, re.MULTILINE))
    kinds = [kind for kind in (*SESSION_KINDS, *GLOBAL_KINDS, REVISION) if kind is not TURN]
    assert set(rows) == {kind.file for kind in kinds}
    for kind in kinds:
        row = [re.findall(r"`([^`]+)`", cell) for cell in rows[kind.file].split("|")]
        assert row == [[kind.key], [kind.memory_id(1)], list(kind.required), [kind.actor]]


def test_the_examples_of_format_are_in_the_format(tmp_path: Path) -> None:
    metadata, decisions = blocks(FORMAT, "yaml")
    shown = load_mapping(metadata.encode(), "session", "FORMAT.md")
    made = load_mapping(
        new_metadata("s", now(), user="u", agents=["a"], quota_bytes=1, context={
            "project_name": "p", "project_phase": "r", "primary_topic": "t", "tags": []}),
        "session", "metadata.yaml",
    )  # fmt: skip

    def shape(value: object) -> object:
        is_mapping = isinstance(value, dict)
        return {key: shape(item) for key, item in value.items()} if is_mapping else None

    assert shape(shown) == shape(made)
    assert not parse(decisions.encode(), "decisions").bad
    (turn,) = Conversation().parse(blocks(FORMAT, "markdown")[0].encode()).records
    assert turn.value["content"] == "Let's review the authentication requirements."
    assert turn.value["tags"] == ["oauth"]


def test_format_gives_the_numbers_of_the_code_and_the_order_of_the_locks() -> None:
    for number in (f"{DEFAULT_QUOTA_BYTES:,}", f"{CONTENT_CAP_BYTES:,}", f"0{DIRECTORY_MODE:o}", f"0{FILE_MODE:o}"):
        assert number in FORMAT
    paragraph = FORMAT[FORMAT.index("### 9.1 Locks") : FORMAT.index("### 9.2")]
    without = {kind.file for kind in GLOBAL_KINDS} | {"user-profile.yaml"}
    named = [name for name in layout.LOCK_ORDER if name not in without]
    positions = [paragraph.index(f"`{name}*`" if name.endswith("/") else f"`{name}`") for name in named]
    assert positions == sorted(positions)


def test_design_names_every_package_and_nothing_that_is_not_there() -> None:
    for package in ("smp_client", "smp_daemon"):
        for path in (TOP / package).iterdir():
            if path.is_dir() and (path / "__init__.py").exists():
                assert f"{path.name}/" in DESIGN, path
    for name in re.findall(r"`([a-z_/]+\.py)`", DESIGN):
        assert list(TOP.glob(f"**/{name}")), name


def test_the_project_speaks_of_the_project_alone() -> None:
    """No path of the machine it was made on is anywhere in it."""
    patterns = ("*.md", "*/*.md", "smp_*/**/*.py", "tests/**/*.py")
    for path in (path for pattern in patterns for path in TOP.glob(pattern)):
        assert not re.search(r"/(?:work|root|home/\w+)/", path.read_text()), path


def test_memory_finds_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A given root, SMP_ROOT, the nearest tree upward, also under _bmad, or a new one here."""
    monkeypatch.delenv("SMP_ROOT", raising=False)
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert Memory().root == inner / ".bmad/sessions"
    (tmp_path / "_bmad/sessions").mkdir(parents=True)
    assert Memory().root == tmp_path / "_bmad/sessions"
    (tmp_path / "a/.bmad/sessions").mkdir(parents=True)
    assert Memory().root == tmp_path / "a/.bmad/sessions"
    monkeypatch.setenv("SMP_ROOT", str(tmp_path / "elsewhere"))
    assert Memory().root == tmp_path / "elsewhere"
    assert Memory(tmp_path / "given").root == tmp_path / "given"


def test_the_manual_page_is_made_from_the_help() -> None:
    """`.ci/generate` writes it anew."""
    assert manual.page() == (TOP / "docs/smp.1").read_text()
