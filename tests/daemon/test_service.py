"""Services: the files for systemd and launchd, their installation, and messages to systemd."""

from __future__ import annotations

import json
import os
import plistlib
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import daemons
import pytest
from daemons import PATIENCE_S
from service_examples import examples

from smp_client import Conflict, Invalid, StorageFailed
from smp_daemon import daemon
from smp_daemon.cli import EXIT_BY_CODE
from smp_daemon.service import unit
from smp_daemon.service.unit import UNIT_NAME, Place, Service, describe

TOP = Path(__file__).parents[2]
EXPOSURE = 1.0

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def analyze(*arguments: str, runtime: Path | None = None) -> subprocess.CompletedProcess[str]:
    # A user's manager wants a runtime directory, which a user who has not logged in does not have.
    environment = os.environ if runtime is None else os.environ | {"XDG_RUNTIME_DIR": str(runtime)}
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def place_in(directory: Path, *, system: bool = False) -> Place:
    return Place(directory / UNIT_NAME, system)


def smp(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    unwanted = ("SMP_ROOT", "SMP_CONFIG", "XDG_CONFIG_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return daemons.smp(*arguments, env=kept | {"HOME": str(home)}, cwd=home)


# The files


@pytest.mark.parametrize("name", examples())
def test_the_files_in_the_repository_are_what_the_code_renders(name: str) -> None:
    assert (TOP / name).read_text() == examples()[name]


def test_a_unit_does_not_start_again_where_only_a_person_can_help() -> None:
    assert {EXIT_BY_CODE["MEM_E015"], EXIT_BY_CODE["MEM_E016"]} == set(unit.FOR_A_PERSON)


def test_a_service_runs_this_interpreter_with_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = describe(["a", "b", "./a"], "c.yaml")
    assert service.command == (
        sys.executable, "-P", "-m", "smp_daemon", "run", "--config", f"{tmp_path}/c.yaml",
        "--root", f"{tmp_path}/a", "--root", f"{tmp_path}/b",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("root", "line"),
    [("/home/p", "ProtectHome=read-only"), ("/tmp/p", "PrivateTmp=no"),
     ("/srv/p", "PrivateTmp=yes")],
)  # fmt: skip
def test_what_the_service_needs_is_not_hidden_from_it(root: str, line: str) -> None:
    service = Service("/usr/bin/python3", (root,), user="root")
    assert line in unit.render_unit(service).splitlines()


@pytest.mark.parametrize(
    ("program", "roots"),
    [("/usr/bin/python3", ("/srv/a\nUser=root",)), ("/usr/bin/python3", ("/srv/\udcff",)),
     ("/usr/bin/python3", ("relative",)), ("/usr/bin/python3", ()),
     ("/the $best/python3", ("/srv/x",))],
)  # fmt: skip
def test_what_a_service_file_cannot_say_is_refused(program: str, roots: tuple[str, ...]) -> None:
    """A line break in a path would be a setting of its own."""
    with pytest.raises(Invalid):
        Service(program, roots)


# systemd's own judgement


@needs_systemd
@pytest.mark.parametrize("user", [None, "root"])
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: Path, user: str | None) -> None:
    """`systemd-analyze verify` has no complaint, for the user's manager and the system's."""
    path = tmp_path / "smp.service"
    path.write_text(unit.render(describe(["/srv/a b"], user=user), place_in(tmp_path)))
    manager = [] if user else ["--user"]
    checked = analyze("verify", *manager, "--man=no", str(path), runtime=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("root", ["/home/project", "/tmp/project"])
def test_the_system_unit_is_hardly_exposed(tmp_path: Path, root: str) -> None:
    path = tmp_path / "smp.service"
    path.write_text(unit.render_unit(Service("/usr/bin/python3", (root,), user="nobody")))
    said = analyze("security", "--offline=yes", "--no-pager", str(path)).stdout
    assert float(said.rpartition("exposure level for")[2].split(":")[1].split()[0]) <= EXPOSURE


@pytest.mark.parametrize(
    ("word", "line"),
    [("/plain/path-1.2_x", "/plain/path-1.2_x"), ("a b", '"a b"'), ("50%", '"50%%"'), ("", '""'),
     ("$HOME", '"$$HOME"'), ("it's", '"it\'s"'), ('"', '"\\""'), ("\\n", '"\\\\n"')],
)  # fmt: skip
def test_a_word_of_a_command_is_escaped(word: str, line: str) -> None:
    """Specifiers, variables, quotes and backslashes of a path mean themselves in a unit."""
    assert unit.argument(word) == line
    assert unit.quoted(word) == line.replace("$$", "$")  # only command lines know variables


# Installation


def test_the_user_and_the_system_have_their_places(tmp_path: Path) -> None:
    def path(platform: str, system: bool, **environment: str) -> str:
        return str(unit.place(platform, system, tmp_path, environment).path)

    assert path("linux", False) == f"{tmp_path}/.config/systemd/user/smp.service"
    assert path("linux", False, XDG_CONFIG_HOME="/c") == "/c/systemd/user/smp.service"
    assert path("linux", True) == "/etc/systemd/system/smp.service"
    plist = "session-memory-persistence.plist"
    assert path("darwin", False) == f"{tmp_path}/Library/LaunchAgents/{plist}"
    with pytest.raises(Invalid, match="--system"):
        path("darwin", True)


def test_launchd_gets_the_command_with_its_roots_and_says_how_to_start_it(tmp_path: Path) -> None:
    where = unit.place("darwin", False, tmp_path, {})
    service = describe([tmp_path / "a & b"])
    assert unit.install(service, where)
    properties = plistlib.loads(where.path.read_bytes())
    assert tuple(properties["ProgramArguments"]) == service.command
    assert properties["StandardErrorPath"] == f"{tmp_path}/Library/Logs/smp.log"
    assert f"launchctl bootstrap gui/{os.getuid()} {where.path}" in unit.after_install(where)[0]
    assert unit.after_uninstall(where).startswith("launchctl bootout gui/")


def test_installing_again_changes_nothing_and_other_roots_need_force(tmp_path: Path) -> None:
    where, service = place_in(tmp_path / "units"), describe([tmp_path / "a"])
    assert not unit.uninstall(where)
    assert [unit.install(service, where) for _ in range(2)] == [True, False]
    other = describe([tmp_path / "b"])
    with pytest.raises(Conflict, match="--force"):
        unit.install(other, where)
    assert unit.install(other, where, force=True)
    assert (tmp_path / "b/active").is_dir()
    assert [path.name for path in where.path.parent.iterdir()] == [UNIT_NAME]
    assert where.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_mask", [False, True])
def test_a_file_that_is_not_from_smp_is_left_alone(tmp_path: Path, is_mask: bool) -> None:
    where, service = place_in(tmp_path), describe([tmp_path / "a"])
    if is_mask:
        where.path.symlink_to("/dev/null")
    else:
        where.path.write_text("[Service]\n")
    before = where.path.read_bytes()
    with pytest.raises(Conflict, match="--force"):
        unit.install(service, where)
    with pytest.raises(Conflict, match="--force"):
        unit.uninstall(where)
    assert where.path.read_bytes() == before
    assert unit.install(service, where, force=True)
    assert unit.read(where) == unit.render(service, where)
    assert unit.uninstall(where)


def test_the_service_of_the_system_can_be_read_by_all_and_makes_no_tree(tmp_path: Path) -> None:
    """A tree that this account makes could not be written by the service's account."""
    where = place_in(tmp_path / "units", system=True)
    with pytest.raises(StorageFailed, match="smp init"):
        unit.install(describe([tmp_path / "a"], user="nobody"), where)
    (tmp_path / "a").mkdir()
    assert unit.install(describe([tmp_path / "a"], user="nobody"), where)
    assert where.path.stat().st_mode & 0o777 == 0o644
    assert "User=nobody\n" in where.path.read_text()


def test_the_command_installs_shows_and_uninstalls(tmp_path: Path) -> None:
    """With no systemd running."""
    path, root = tmp_path / ".config/systemd/user/smp.service", tmp_path / "a b/.bmad/sessions"
    plan = smp(tmp_path, "service", "install", "--root", str(root), "--dry-run").stdout
    assert not path.exists()
    done = smp(tmp_path, "service", "install", "--root", str(root), "--json")
    assert plan == path.read_text()
    control = "systemctl --user"
    start = f"{control} daemon-reload && {control} enable smp && {control} restart smp"
    assert json.loads(done.stdout) == {
        "path": str(path), "changed": True, "dry_run": False,
        "next": [start, "loginctl enable-linger"],
    }  # fmt: skip
    assert f'--root "{root}"' in path.read_text()
    shown = json.loads(smp(tmp_path, "service", "show", "--json").stdout)
    assert shown == {"path": str(path), "file": path.read_text()}
    assert "systemctl --user stop smp" in smp(tmp_path, "service", "uninstall").stdout
    absent = smp(tmp_path, "service", "show")
    assert (absent.returncode, absent.stdout.count("\n")) == (1, 1)


# Notification


@pytest.mark.parametrize("address", ["", "relative", "@smp-nobody-listens", "/" + "x" * 200])
def test_without_a_manager_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """No socket, a wrong one, one that nobody listens on, one with too long a name."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    daemon._notify("READY=1")


def test_a_real_daemon_says_ready_and_stopping(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    environment = os.environ | {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "60000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.settimeout(PATIENCE_S)
        command = [sys.executable, "-m", "smp_daemon", "run", "--root", str(tmp_path / "sessions")]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert listening.recv(4096).startswith(b"READY=1")
            assert (tmp_path / "sessions/active").is_dir()
            while b"WATCHDOG=1" not in listening.recv(4096):
                pass
            process.send_signal(signal.SIGTERM)
            while not listening.recv(4096).startswith(b"STOPPING=1"):
                pass
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
