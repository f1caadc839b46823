"""Where the memory of a project is: git repositories, worktrees, trees of projects and users."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from daemons import smp

from smp_client import Memory
from smp_client.disk.home import find_home


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for projects, whose user has no tree yet."""
    monkeypatch.delenv("SMP_ROOT", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def git(*arguments: object) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    words = ["git", *who, *map(str, arguments)]
    subprocess.run(words, check=True, capture_output=True)


def repository(path: Path) -> Path:
    git("init", path)
    git("-C", path, "commit", "--allow-empty", "-m", "Begin")
    return path


def root_in(directory: Path) -> Path:
    return Path(find_home(directory).root)


def test_a_project_is_the_top_of_its_repository(place: Path) -> None:
    top = repository(place / "shop")
    inner = top / "src/deep"
    inner.mkdir(parents=True)
    assert root_in(inner) == top / ".bmad/sessions"
    assert find_home(inner).name == "shop"
    plain = place / "notes"
    plain.mkdir()
    assert root_in(plain) == plain / ".bmad/sessions"
    (inner / ".bmad/sessions").mkdir(parents=True)
    assert root_in(inner) == inner / ".bmad/sessions", "the nearest tree, as ever"
    assert find_home(inner).name == "deep"


def test_every_worktree_has_the_memory_of_the_main_one(place: Path) -> None:
    top = repository(place / "shop")
    linked = place / "elsewhere/feature"
    git("-C", top, "worktree", "add", linked)
    (linked / "src").mkdir()
    assert root_in(linked / "src") == top / ".bmad/sessions"
    assert find_home(linked).name == "shop"
    Memory(top / "_bmad/memory/smp").create()
    (linked / ".bmad/sessions").mkdir(parents=True)  # such as one that was committed
    assert root_in(linked / "src") == top / "_bmad/memory/smp"


def test_a_worktree_of_a_hidden_bare_repository_shares_its_directory(place: Path) -> None:
    repository(place / "first")
    git("clone", "--bare", place / "first", place / "shop/.bare")
    git("clone", "--bare", place / "first", place / "served.git")
    git("-C", place / "shop/.bare", "worktree", "add", place / "shop/main")
    git("-C", place / "served.git", "worktree", "add", place / "served")
    assert root_in(place / "shop/main") == place / "shop/.bmad/sessions"
    assert root_in(place / "served") == place / "served/.bmad/sessions"


def test_a_checkout_cannot_claim_the_memory_of_another_project(place: Path) -> None:
    top = repository(place / "secret")
    linked = place / "feature"
    git("-C", top, "worktree", "add", linked)
    strange = place / "strange"
    strange.mkdir()
    (strange / ".git").write_text((linked / ".git").read_text())
    assert root_in(strange) == strange / ".bmad/sessions"


@pytest.mark.parametrize("said", [b"", b"gitdir:", b"gitdir: /nowhere", b"\xff\0", b"x" * 10_000])
def test_a_git_file_that_names_nothing_is_the_top_of_a_project(place: Path, said: bytes) -> None:
    (place / "odd/inner").mkdir(parents=True)
    (place / "odd/.git").write_bytes(said)
    assert root_in(place / "odd/inner") == place / "odd/.bmad/sessions"


def test_a_submodule_is_a_project_of_its_own(place: Path) -> None:
    part = repository(place / "part")
    whole = repository(place / "whole")
    git("-c", "protocol.file.allow=always", "-C", whole, "submodule", "add", part, "lib")
    assert root_in(whole / "lib") == whole / "lib/.bmad/sessions"


def test_a_project_without_a_tree_is_a_field_in_the_users_tree(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = Memory(place / "data/smp/sessions")
    users.create_session(id="blog", project="Blog").record_decision("Use Hugo", made_by="jane")
    inner = repository(place / "shop") / "src"
    inner.mkdir()
    made = smp("new", "--id", "cart", cwd=inner)
    assert made.returncode == 0, made.stderr
    assert made.stderr == "", "no tree was made"
    assert smp("add", "cart", "decision", "Use cents", "--by", "jane", cwd=inner).returncode == 0
    assert users.session("cart").metadata()["context"]["project_name"] == "shop"
    page = smp("context", cwd=inner).stdout
    assert "Use cents" in page
    assert "Use Hugo" not in page
    assert "Use Hugo" in smp("context", "--all", cwd=inner).stdout
    monkeypatch.chdir(inner)
    assert Memory().root == users.root
    assert "Use Hugo" not in Memory().context()
    assert "Use Hugo" in users.context(), "a program that names a root asks about all of it"


def test_the_first_write_makes_the_projects_own_tree_and_says_where(place: Path) -> None:
    inner = repository(place / "shop") / "src"
    inner.mkdir()
    root = place / "shop/.bmad/sessions"
    assert f"There is no memory at {root}" in smp("search", "x", cwd=inner).stderr
    assert not root.exists()
    made = smp("new", "--id", "cart", cwd=inner)
    assert made.stdout == "cart\n"
    assert str(root) in made.stderr
    assert (root / "active/cart").is_dir()
    assert smp("new", cwd=inner).stderr == ""


def test_init_makes_the_projects_own_tree_and_names_what_the_users_tree_keeps(place: Path) -> None:
    users = Memory(place / "data/smp/sessions")
    users.create_session(id="blog", project="Blog")
    users.create_session(id="cart", project="Shop").record_decision("Use cents", made_by="jane")
    inner = repository(place / "shop") / "src"
    inner.mkdir()
    root = place / "shop/.bmad/sessions"
    done = smp("init", cwd=inner)
    assert done.stdout == f"{root} is ready\n"
    assert root_in(inner) == root
    assert "blog" not in done.stderr
    commands = re.findall(r"smp (export .*?) and smp (import .*)\n", done.stderr)
    for line in commands[0]:
        assert smp(*shlex.split(line), cwd=inner).returncode == 0
    assert "Use cents" in smp("context", cwd=inner).stdout
    assert smp("init", cwd=inner).stderr == ""


def test_git_does_not_see_a_new_tree_and_an_old_one_is_left_alone(place: Path) -> None:
    top = repository(place / "shop")
    memory = Memory(top / ".bmad/sessions")
    memory.create_session(id="cart")
    git("-C", top, "add", "-A")
    seen = ["git", "-C", str(top), "status", "--porcelain"]
    assert subprocess.run(seen, check=True, capture_output=True).stdout == b""
    ignore = memory.root / ".gitignore"
    assert ignore.read_text() == "*\n"
    ignore.unlink()
    memory.create_session(id="stock")
    assert not ignore.exists()
    own = place / "notes"
    own.mkdir()
    (own / ".gitignore").write_text("quarantine\n")
    Memory(own).create()
    assert (own / ".gitignore").read_text() == "quarantine\n"
