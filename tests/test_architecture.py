"""The rules of the layout, held against every import in the code."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ratchets import density

TOP = Path(__file__).parent.parent
CLIENT_MAY_IMPORT = {"yaml", "filelock", "re2", "smp_client", "numpy", "onnxruntime", "tokenizers"}
# Packages that one module alone uses, so that their traps are in one place.
ONLY_USER = {
    "watchdog": "smp_daemon/ingest/watcher.py", "apscheduler": "smp_daemon/schedule.py",
    "structlog": "smp_daemon/log.py",
    "numpy": "smp_client/index/meaning.py", "onnxruntime": "smp_client/index/meaning.py",
    "tokenizers": "smp_client/index/meaning.py", "filelock": "smp_client/disk/locks.py",
    "re2": "smp_client/redaction/patterns.py",
}  # fmt: skip
# Calls by path: everything else goes through disk.tree.Tree, which follows no link.
BY_PATH = {
    "open", "os.open", "os.rename", "os.replace", "os.remove", "os.mkdir", "os.makedirs",
    "shutil.move", "os.link",
}  # fmt: skip


def modules(package: str) -> list[Path]:
    return sorted((TOP / package).rglob("*.py"))


EVERY = {str(path.relative_to(TOP)): path for name in ("smp_client", "smp_daemon") for path in modules(name)}
CLIENT = {name: path for name, path in EVERY.items() if name.startswith("smp_client/")}
DAEMON = {name: path for name, path in EVERY.items() if name not in CLIENT}
TESTS = sorted((TOP / "tests").rglob("*.py"))


class Import(NamedTuple):
    """The whole name of a module that another one imports."""

    name: str
    is_late: bool  # inside a function
    is_real: bool  # not for annotations alone


def is_module(name: str) -> bool:
    return (TOP / f"{name.replace('.', '/')}.py").exists()


def name_of(path: Path) -> str:
    """Return the name of a module, such as `smp_client.change.move`."""
    return ".".join(path.relative_to(TOP).with_suffix("").parts)


@cache
def imports(path: Path) -> set[Import]:
    """Return the imports of a module, wherever in it."""
    nodes, found = [*ast.walk(ast.parse(path.read_text()))], set()
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    guards = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    late, unreal = ({id(inner) for node in outer for inner in ast.walk(node)} for outer in (functions, guards))
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            above = name_of(path).split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = (f"{base}.{alias.name}" for alias in node.names)
            names = [name if is_module(name) else base for name in inner]
        found |= {Import(name, id(node) in late, id(node) not in unreal) for name in names}
    return found


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a module imports."""
    return {one.name.partition(".")[0] for one in imports(path)}


def calls(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def test_the_client_needs_only_its_own_packages_and_never_logs_or_prints() -> None:
    for name, path in CLIENT.items():
        assert imported(path) - set(sys.stdlib_module_names) <= CLIENT_MAY_IMPORT, name
        assert not imported(path) & {"logging", "structlog", "warnings"}, name
        assert "print" not in calls(path), name


def test_a_fenced_package_has_one_user() -> None:
    found = {(package, name) for name, path in EVERY.items() for package in imported(path) & ONLY_USER.keys()}
    assert found == set(ONLY_USER.items())


def test_files_are_touched_in_one_module_only() -> None:
    for name, path in EVERY.items():
        assert path.name == "tree.py" or not calls(path) & BY_PATH, name


def test_only_the_command_line_prints_and_takes_the_names_that_people_give() -> None:
    """`Memory.session` takes beginnings. Everything else has an id, which must not become another session's."""
    for name, path in EVERY.items():
        if not name.startswith("smp_daemon/cli/"):
            said = calls(path)
            assert not said & {"click.echo", "sys.exit", "exit", *(["print"] if name in DAEMON else [])}, name
            assert not [call for call in said if call.endswith(("memory.session", "root.session"))], name


def test_only_the_composition_root_reads_configuration_and_starts_the_server_for_agents() -> None:
    """Everything below is given plain values. Without the extra of smp_daemon/mcp everything else works."""
    for name, path in DAEMON.items():
        ours = {one.name for one in imports(path)}
        if not name.startswith(("smp_daemon/config/", "smp_daemon/cli/")) and name != "smp_daemon/daemon.py":
            assert "smp_daemon.config.file" not in ours, name
        if not name.startswith(("smp_daemon/mcp/", "smp_daemon/cli/host.py")):
            assert not [one for one in ours if one.startswith("smp_daemon.mcp")], name


def test_a_program_starts_without_the_packages_that_take_long_to_load(tmp_path: Path) -> None:
    """`inspect` comes with dataclasses. A question needs SQLite, and PyYAML only for new files."""
    code = (
        "import sys; from smp_client import Memory;"
        "slow = {'filelock', 'hashlib', 'inspect', 'pathlib', 'sqlite3', 'tarfile', 'yaml'};"
        "assert not slow & {*sys.modules}, slow & {*sys.modules};"
        "memory = Memory('sessions'); memory.create(); memory.search('x');"
        "slow = {'tarfile', 'yaml'};"
        "assert not slow & {*sys.modules}, slow & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


# The rooms of the client from top to bottom. Imports go down only. "" is the front door: memory, session, transaction.
LAYERS = ("", "agents", "exchange", "passes", "privacy", "change", "ask", "index", "disk", "text", "redaction", "model")
# Each may fall and never rises. Beside it: where the design wants it.
# Whoever lowers one lowers it here, in the same commit.
RATCHETS = {
    "tokens per code line": 10.14,  # 8.5
    "packed assignments per 1,000 code lines": 16.8,  # 3
    "parameters annotated with Any": 221,  # 60
    "functions with 15 branches or more": 44,  # 12
    "`# fmt:` comments, tests too": 489,  # 30, tables only
    "lines over 100 columns, tests too": 536,  # 0
}


def targets(path: Path) -> set[str]:
    """Return the modules of the client that a module imports.

    Names for annotations do not count: a lower layer gets a `Memory` or a `Session` as an argument.
    """
    real = {one.name for one in imports(path) if one.is_real and one.name.startswith("smp_client.")}
    return {name for name in real if is_module(name)}


def test_imports_go_down_only_and_in_no_circle() -> None:
    """Imports inside functions count, too: a module can be read when those below it are known."""

    def layer(name: str) -> int:
        return LAYERS.index(".".join(name.split(".")[1:-1]).partition(".")[0])

    edges = {name_of(path): targets(path) - {name_of(path)} for path in CLIENT.values()}
    assert {(name, one) for name in edges for one in edges[name] if layer(one) < layer(name)} == set()
    while leaves := {name for name, below in edges.items() if not below & edges.keys()}:
        edges = {name: below for name, below in edges.items() if name not in leaves}
    assert sorted(edges) == []


def test_no_two_modules_share_a_name() -> None:
    stems = [path.stem for path in EVERY.values()]
    assert {stem for stem in stems if stems.count(stem) > 1} <= {"__init__"}


def test_the_counts_that_make_code_hard_to_carry_never_rise() -> None:
    source = list(EVERY.values())
    tests = [path for path in TESTS if path != Path(__file__)]
    lines = [line for path in [*source, *tests] for line in path.read_text().splitlines()]
    counted = density(source)
    thousands = counted.code_lines / 1000
    now = {
        "tokens per code line": counted.tokens / counted.code_lines,
        "packed assignments per 1,000 code lines": counted.packed_assignments / thousands,
        "parameters annotated with Any": counted.any_parameters,
        "functions with 15 branches or more": counted.tangled_functions,
        "`# fmt:` comments, tests too": sum("# fmt:" in line for line in lines),
        "lines over 100 columns, tests too": sum(len(line) > 100 for line in lines),
    }
    assert now.keys() == RATCHETS.keys()
    assert {name: count for name, count in now.items() if count > RATCHETS[name]} == {}


def test_the_text_layer_is_pure() -> None:
    """Files as text: no clock and no disk."""
    for path in modules("smp_client/text"):
        assert not imported(path) & {"os", "time", "pathlib"}, path


# Imports that stand inside functions, by the reason: then the target is loaded with its first use.
LATE = {
    "it is of an extra": ("numpy", "onnxruntime", "tokenizers"),
    "a system may lack it": ("watchdog.observers.inotify_c",),
    "it takes long to load, and most processes do without": (
        "ctypes", "difflib", "filelock", "hashlib", "importlib", "pathlib", "random",
        "re2", "shutil", "signal", "yaml",
        "smp_client.redaction.named", "smp_client.redaction.personal",
        "smp_client.redaction.secrets", "smp_daemon.schedule",
        "smp_client.disk.bundle", "smp_client.disk.tombstones",
    ),
    "a program that only writes, or only asks, starts without it": (
        "smp_client.agents.agent", "smp_client.agents.context", "smp_client.agents.party",
        "smp_client.ask.alike", "smp_client.ask.asker", "smp_client.ask.engine",
        "smp_client.ask.options", "smp_client.ask.overview", "smp_client.ask.related",
        "smp_client.ask.spec",
        "smp_client.ask.summary", "smp_client.change.change", "smp_client.change.history",
        "smp_client.change.holdings",
        "smp_client.change.move", "smp_client.change.restore",
        "smp_client.erasure", "smp_client.exchange.gate", "smp_client.index.fresh",
        "smp_client.index.topics", "smp_client.index.unreadable",
        "smp_client.passes.check", "smp_client.passes.for_people",
        "smp_client.passes.repair", "smp_client.passes.compaction",
        "smp_client.passes.decay", "smp_client.passes.lifecycle", "smp_client.session_name",
        "smp_client.disk.access", "smp_client.disk.journal", "smp_client.disk.scope",
        "smp_client.disk.session_files", "smp_client.disk.wakeup", "smp_client.index.take_in", "smp_client.session",
        "smp_client.text.format",
    ),
}  # fmt: skip


def test_an_import_stands_inside_a_function_only_for_a_reason() -> None:
    """A command of `smp` loads what it runs, so the command line is left out."""
    paths = [path for path in EVERY.values() if "cli" not in path.parts]
    found = {one.name for path in paths for one in imports(path) if one.is_late}
    assert found - {name for names in LATE.values() for name in names} == set()
