"""The rules of the layout, held against every import in the code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
CLIENT_MAY_IMPORT = {"yaml", "filelock", "smp_client", "numpy", "safetensors", "tokenizers"}
# Module that is the only user of a package, by package.
ONLY_USER = {"watchdog": "smp_daemon/ingest/watcher.py", "apscheduler": "smp_daemon/schedule.py", "structlog": "smp_daemon/log.py",
             "numpy": "smp_client/index/meaning.py",
             "safetensors": "smp_client/index/meaning.py", "tokenizers": "smp_client/index/meaning.py"}  # fmt: skip


def modules(package: str) -> list[Path]:
    return sorted((TOP / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.split(".")[0])
    return names


def calls(path: Path) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("path", modules("smp_client"), ids=lambda path: path.name)
def test_the_client_needs_only_yaml_and_filelock(path: Path) -> None:
    """Nothing of the daemon, and no third package, is imported anywhere in the client."""
    assert imported(path) - set(sys.stdlib_module_names) <= CLIENT_MAY_IMPORT


@pytest.mark.parametrize("path", [*modules("smp_client"), *modules("smp_daemon")], ids=lambda path: str(path.relative_to(TOP)))
def test_a_fenced_package_has_one_user(path: Path) -> None:
    """watchdog, apscheduler, structlog and mcp are each used by one module alone, so that their traps are in one place."""
    name = str(path.relative_to(TOP))
    assert {package for package, user in ONLY_USER.items() if package in imported(path) and user != name} == set()


@pytest.mark.parametrize("path", modules("smp_daemon"), ids=lambda path: str(path.relative_to(TOP)))
def test_only_its_command_imports_the_server_for_agents(path: Path) -> None:
    """smp_daemon/mcp is optional: without its extra everything else works."""
    name = str(path.relative_to(TOP / "smp_daemon"))
    ours = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level]
    assert not any((node.module or "").partition(".")[0] == "mcp" for node in ours) or name == "cli/host.py"


@pytest.mark.parametrize("path", modules("smp_client"), ids=lambda path: path.name)
def test_the_client_raises_and_never_logs_or_prints(path: Path) -> None:
    assert not imported(path) & {"logging", "structlog", "warnings"}
    assert "print" not in calls(path)


@pytest.mark.parametrize("path", modules("smp_daemon"), ids=lambda path: str(path.relative_to(TOP)))
def test_only_the_command_line_prints_and_exits(path: Path) -> None:
    if "cli" not in path.relative_to(TOP).parts:
        assert not calls(path) & {"print", "click.echo", "sys.exit", "exit"}


@pytest.mark.parametrize("path", [*modules("smp_client"), *modules("smp_daemon")], ids=lambda path: str(path.relative_to(TOP)))
def test_files_are_touched_in_one_module_only(path: Path) -> None:
    """Whatever opens, renames or removes a file by its path goes through disk.tree.Tree, which follows no link."""
    if path.name == "tree.py":
        return
    by_path = {"open", "os.open", "os.rename", "os.replace", "os.remove", "os.mkdir", "os.makedirs", "shutil.move", "os.link"}
    assert not calls(path) & by_path


@pytest.mark.parametrize("path", modules("smp_daemon"), ids=lambda path: str(path.relative_to(TOP)))
def test_only_the_composition_root_reads_configuration(path: Path) -> None:
    """Everything below the command line and the daemon is given plain values, so a test can give it others."""
    name = str(path.relative_to(TOP / "smp_daemon"))
    ours = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level]
    named = {node.module for node in ours} | {alias.name for node in ours if not node.module for alias in node.names}
    assert not {"config.file", "file"} & named or name.startswith("config/") or name == "daemon.py" or name.startswith("cli/")


@pytest.mark.parametrize("path", [*modules("smp_client"), *modules("smp_daemon")], ids=lambda path: str(path.relative_to(TOP)))
def test_only_the_command_line_takes_the_names_that_people_give(path: Path) -> None:
    """`Memory.session` takes `latest` and beginnings. Everything else has an id, which must not become another session's."""
    if "cli" not in path.relative_to(TOP).parts:
        assert not [call for call in calls(path) if call.endswith(("memory.session", "root.session"))]


def test_only_the_locks_module_uses_filelock() -> None:
    users = {path.name for path in modules("smp_client") if "filelock" in imported(path)}
    assert users == {"locks.py"}


def test_a_program_starts_without_the_packages_that_take_long_to_load(tmp_path: Path) -> None:
    """`inspect` comes with dataclasses. A question needs SQLite, and PyYAML only for new files."""
    import subprocess

    code = (
        "import sys; from smp_client import Memory;"
        "slow = {'filelock', 'hashlib', 'inspect', 'sqlite3', 'tarfile', 'yaml'};"
        "assert not slow & {*sys.modules}, slow & {*sys.modules};"
        "memory = Memory('sessions'); memory.create(); memory.search('x');"
        "slow = {'tarfile', 'yaml'};"
        "assert not slow & {*sys.modules}, slow & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


# The rooms of the client from top to bottom. Imports go down only. "" is the front door: memory, session, transaction.
LAYERS = ("", "agents", "exchange", "passes", "privacy", "change", "ask", "index", "disk", "text", "redaction", "model")
# Imports that go up, each for a reason that stands here.
UPWARD: set[tuple[str, str]] = set()
# How many lines each package may have: a new feature raises it, in a commit that says why.
BUDGETS = {
    "smp_client/agents": 1_270,
    "smp_client/exchange": 2_467,
    "smp_client/passes": 2_090,
    "smp_client/privacy": 1_074,
    "smp_client/change": 1_870,
    "smp_client/ask": 2_258,
    "smp_client/index": 2_540,
    "smp_client/disk": 3_106,
    "smp_client/text": 1_743,
    "smp_client/redaction": 944,
    "smp_client/model": 1_040,
    "smp_daemon/cli": 2_566,
    "smp_daemon/config": 540,
    "smp_daemon/ingest": 1_270,
    "smp_daemon/service": 425,
    "smp_daemon/mcp": 1_390,
}


def room_of(path: Path) -> str:
    """Return a module of the client by its name below the package, such as `change.move`."""
    return ".".join(path.relative_to(TOP / "smp_client").with_suffix("").parts)


def targets(path: Path) -> set[str]:
    """Return the modules of the client that a module imports, wherever in it.

    Names for annotations do not count: a lower layer gets a `Memory` or a `Session` as an argument.
    """
    tree, package = ast.parse(path.read_text()), room_of(path).split(".")[:-1]
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    unreal = {id(node) for block in blocks for node in ast.walk(block)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in unreal:
            above = package[: len(package) - node.level + 1]
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" if base else alias.name for alias in node.names)}
    return {name for name in names if (TOP / "smp_client" / f"{name.replace('.', '/')}.py").exists()}


@pytest.mark.parametrize("path", modules("smp_client"), ids=room_of)
def test_imports_go_down_only(path: Path) -> None:
    def layer(name: str) -> int:
        return LAYERS.index(name.rpartition(".")[0].partition(".")[0])

    name = room_of(path)
    wrong = {(name, target) for target in targets(path) if layer(target) < layer(name)}
    assert wrong - UPWARD == set()


def test_no_import_goes_in_a_circle() -> None:
    """Imports inside functions count, too: a module can be read when those below it are known."""
    edges = {room_of(path): targets(path) - {room_of(path)} for path in modules("smp_client")}
    while leaves := {name for name, below in edges.items() if not below & edges.keys()}:
        edges = {name: below for name, below in edges.items() if name not in leaves}
    assert sorted(edges) == []


def test_no_two_modules_share_a_name() -> None:
    stems = [path.stem for package in ("smp_client", "smp_daemon") for path in modules(package)]
    assert {stem for stem in stems if stems.count(stem) > 1} <= {"__init__"}


@pytest.mark.parametrize("package", BUDGETS)
def test_a_package_stays_within_its_budget(package: str) -> None:
    assert sum(len(path.read_text().splitlines()) for path in modules(package)) <= BUDGETS[package]


@pytest.mark.parametrize("path", modules("smp_client/text"), ids=lambda path: path.name)
def test_the_text_layer_is_pure(path: Path) -> None:
    """Files as text: no clock and no disk."""
    assert not imported(path) & {"os", "time", "pathlib"}


# Imports that stand inside functions, by the reason: then the target is loaded with its first use.
LATE = {
    "it is of an extra": ("numpy", "safetensors.numpy", "tokenizers"),
    "a system may lack it": ("watchdog.observers.inotify_c",),
    "it takes long to load, and most processes do without": (
        "ctypes", "difflib", "filelock", "hashlib", "importlib", "random", "shutil", "yaml",
        "smp_client.redaction.personal", "smp_client.redaction.secrets", "smp_daemon.schedule",
        "smp_client.disk.bundle", "smp_client.disk.tombstones",
    ),
    "a program that only writes, or only asks, starts without it": (
        "smp_client.agents.agent", "smp_client.agents.context", "smp_client.agents.party",
        "smp_client.ask.asker", "smp_client.ask.engine",
        "smp_client.ask.options", "smp_client.ask.related", "smp_client.ask.spec",
        "smp_client.ask.summary", "smp_client.change.change", "smp_client.change.move",
        "smp_client.change.restore",
        "smp_client.erasure", "smp_client.exchange.gate", "smp_client.index.fresh",
        "smp_client.index.topics", "smp_client.passes.check", "smp_client.passes.compaction",
        "smp_client.passes.decay", "smp_client.passes.lifecycle", "smp_client.session_name",
    ),
}  # fmt: skip


def late_imports(path: Path) -> set[str]:
    """Return the modules that a module imports inside its functions, by their whole names."""
    found: set[str] = set()
    package = path.relative_to(TOP).with_suffix("").parts
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: -node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = (f"{base}.{alias.name}" for alias in node.names)
            found |= {name if (TOP / f"{name.replace('.', '/')}.py").exists() else base for name in names}
    return found


def test_an_import_stands_inside_a_function_only_for_a_reason() -> None:
    """A command of `smp` loads what it runs, so the command line is left out."""
    paths = [path for name in ("smp_client", "smp_daemon") for path in modules(name) if "cli" not in path.parts]
    found = {name for path in paths for name in late_imports(path)}
    assert found - {name for names in LATE.values() for name in names} == set()
