"""The configuration: one description, from which checking, the sample and the help come."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import daemons
import pytest
from daemons import wait_until

from smp_client import Memory
from smp_client.model.policies import CompactionPolicy, RetentionPolicy, Thresholds
from smp_daemon import config
from smp_daemon.cli import COMMANDS, smp
from smp_daemon.cli.host import roots_of
from smp_daemon.config.file import READ_CAP_BYTES, BadConfiguration, load, sample
from smp_daemon.config.settings import SETTINGS, Configuration
from smp_daemon.jobs import JOBS

TOP = Path(__file__).parents[2]
HEAVY = ("structlog", "watchdog", "apscheduler", "sqlite3", "yaml", "filelock", "smp_client")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of the machine that the tests run on gets into them."""
    for name in ("SMP_CONFIG", "SMP_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "etc/smp/smp.yaml")


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems(path: Path, text: str | bytes) -> list[str]:
    with pytest.raises(BadConfiguration) as raised:
        load(written(path, text))
    return list(raised.value.problems)


def test_the_sample_shows_every_default(tmp_path: Path) -> None:
    """A copy of it changes nothing; `smp config sample > config/smp.yaml` writes it anew."""
    assert (TOP / "config/smp.yaml").read_text() == daemons.smp("config", "sample").stdout
    loaded = load(written(tmp_path / "smp.yaml", sample()))
    assert loaded == Configuration()
    assert loaded.given == set(SETTINGS)
    times = {key for key in SETTINGS if key.endswith(("cron", "every_s"))}
    assert times == {job.time for job in JOBS.values()} - {""}


# Checking


def test_every_bad_setting_is_reported_at_once(tmp_path: Path) -> None:
    """Misspelt, of a wrong type, out of range."""
    text = """\
quota_byte: 5
wacth:
  polling_s: 3
watch:
  polling: 5
  polling_s: yes

polling_s: 8
log: debug
roots: [a/b, 5]
lock:
  timeout_s: [1]
index: {rebuild_cron: "0 3 * * 0"}
scan: {every_s: .nan}
"""
    assert problems(tmp_path / "smp.yaml", text) == [
        "quota_byte", "wacth", "watch.polling", "watch.polling_s", "polling_s", "log", "roots",
        "lock.timeout_s", "index.rebuild_cron", "scan.every_s",
    ]  # fmt: skip
    assert problems(tmp_path / "smp.yaml", "quota_byte: 5\ndecay: [\n") == [""]
    path = written(tmp_path / "smp.yaml", "scan:\n  every_s: soon\n")
    with pytest.raises(BadConfiguration) as raised:
        load(path)
    right = "must be a number of seconds from 1 to 86400"
    first, last = str(raised.value).splitlines()
    assert (first, last) == (f"{path}: scan.every_s: {right}, not soon.", raised.value.advice)


@pytest.mark.parametrize(
    ("text", "meant"), [("polling_s: 1", "watch.polling_s"), ("log: {levle: 1}", "log.level")]
)
def test_an_unknown_key_is_answered_with_the_nearest(tmp_path: Path, text: str, meant: str) -> None:
    with pytest.raises(BadConfiguration, match=rf"is {re.escape(meant)} meant\?"):
        load(written(tmp_path / "smp.yaml", text))


BAD = [
    "quota_bytes: 10 MB", "quota_bytes: '10485760'", "quota_bytes: 10485760.0", "quota_bytes: true",
    "quota_bytes: null", "quota_bytes: 0", "quota_bytes: [1]", "lock: {timeout_s: -0.1}",
    "lock: {timeout_s: .inf}", "log: {file: relative.log}", "log: {file: ''}", "log: {file: 5}",
    'log: {file: "/a\\0b"}', "log: {file: ~no-such-user/x}", "log: {level: INFO}",
    "log: {max_bytes: 0}", "roots: /a", "roots: [/a, /a]", "roots: [/a/b, /a]", "roots: [/a, /a/../a/c]",
    "roots: [/a]\nlog: {file: /a/smp.log}", "watch: {polling_s: 0}", "watch: []", "watch: 5",
    "lifecycle: {idle_after_hours: 168}", "lifecycle: {archive_after_days: 0}",
    "compaction: {gentle_at_pct: 95}", "compaction: {automatic: 1}", "decay: {cron: never}",
    "decay: {finding: [1, 2]}", "decay: {finding: [1, 0h, 0, 0]}", "retention: {deleted_days: null}",
    "retention: {decisions_days: -1}", "redaction: {patterns: {a: '('}}",
    # Programs disagree on the day of the week by number.
    *(f"decay: {{cron: '{cron}'}}" for cron in ("0 3 * *", "60 * * * *", "* * * * 0", "*/0 * * * *",
                                                "@daily", "0 3 * * mon-5")),
    # These are no files of settings.
    "- a", "5", "a: 1\n---\nb: 2", "\x00", "!!python/object:os.system {}", "<<: {a: 1}",
    "log: !x {level: info}", "watch: &a {polling_s: 5}\nscan: *a", "[" * 30_000, "{a: " * 5_000,
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, text: str) -> None:
    assert len(problems(tmp_path / "smp.yaml", text)) == 1


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "watch:\n  # polling_s: 5\nlog:\n",
                                  "\ufeffwatch: {}\n"])  # fmt: skip
def test_a_file_with_everything_commented_out_is_good(tmp_path: Path, text: str) -> None:
    assert load(written(tmp_path / "smp.yaml", text)) == Configuration()


def test_settings_become_the_options_of_a_memory(tmp_path: Path) -> None:
    text = """\
lifecycle: {idle_after_hours: 1, decaying_after_days: 2, archive_after_days: 3.5}
compaction: {automatic: false, gentle_at_pct: 50}
retention: {deleted_days: 7, conversation_days: 90, findings_days: 365}
decay: {finding: [1, 24h, 0, 0.5], age_rate: 0}
redaction: {personal: [email], patterns: {badge: "B-##"}}
"""
    options = Memory(tmp_path, **load(written(tmp_path / "smp.yaml", text)).options).options
    assert options.thresholds == Thresholds(1, 2, 3.5)
    assert options.compaction == CompactionPolicy(gentle_at_pct=50, automatic=False)
    assert options.retention == RetentionPolicy(7, {"conversation_turn": 90, "finding": 365})
    assert options.policy is not None
    assert options.redaction is not None
    assert (options.policy.rules["finding"].floor, options.policy.age_rate) == (0.5, 0)
    assert round(options.policy.rules["finding"].rate, 3) == 0.693
    found = options.redaction.redacted_value("a@example.com has B-17")[0]
    assert found == "[redacted: email] has [redacted: badge]"


# Where it is found


def test_the_nearest_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The named one, then that of SMP_CONFIG, then the user's, then the system's."""
    assert config.find() is None
    assert load() == Configuration()
    system = written(tmp_path / "etc/smp/smp.yaml", "quota_bytes: 100001")
    assert config.find() == system
    user = written(tmp_path / "xdg/smp/smp.yaml", "quota_bytes: 100002")
    assert config.find() == user
    variable = written(tmp_path / "variable.yaml", "quota_bytes: 100003")
    monkeypatch.setenv("SMP_CONFIG", str(variable))
    assert load()["quota_bytes"] == 100003
    assert load(written(tmp_path / "named.yaml", "quota_bytes: 100004"))["quota_bytes"] == 100004


def test_a_file_that_is_named_or_there_must_be_readable(tmp_path: Path) -> None:
    """Only a file that nobody named may be absent."""
    with pytest.raises(BadConfiguration, match="No such file"):
        load(tmp_path / "missing.yaml")
    (tmp_path / "xdg/smp").mkdir(parents=True)
    (tmp_path / "xdg/smp/smp.yaml").symlink_to(tmp_path / "missing.yaml")
    with pytest.raises(BadConfiguration, match="No such file"):
        load()
    os.mkfifo(tmp_path / "fifo")
    for odd in (tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(BadConfiguration, match="not a plain file"):
            load(odd)
    with pytest.raises(BadConfiguration, match="larger than"):
        load(written(tmp_path / "large.yaml", "#" * (READ_CAP_BYTES + 1)))


def test_the_roots_are_those_of_the_flag_then_the_variable_then_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    configured = Configuration({"roots": (Path("/a"), Path("/b"))})
    assert roots_of((), Configuration()) == [tmp_path / ".bmad/sessions"]
    assert roots_of((), configured) == [Path("/a"), Path("/b")]
    monkeypatch.setenv("SMP_ROOT", "/c")
    assert roots_of((), configured) == [Path("/c")]
    assert roots_of(("/d", "/e"), configured) == ["/d", "/e"]


# The command


def test_show_says_what_is_in_effect_and_where_it_comes_from(tmp_path: Path) -> None:
    path = written(tmp_path / "smp.yaml", "scan:\n  every_s: 80\n")
    said = daemons.smp("config", "show", "--config", path).stdout
    assert re.search(rf"^scan\.every_s +80.0 +{re.escape(str(path))}$", said, re.MULTILINE)
    assert re.search(r"^log\.level +info +default$", said, re.MULTILINE)
    answer = json.loads(daemons.smp("config", "show", "--config", path, "--json").stdout)
    assert answer["settings"]["scan.every_s"] == {"value": 80, "from": str(path)}
    assert set(answer["settings"]) == set(SETTINGS)


def test_a_bad_configuration_exits_with_5_and_starts_no_daemon(tmp_path: Path) -> None:
    """A tree is not made. A usage error is still 2."""
    path = written(tmp_path / "smp.yaml", "a: 1\nscan: {every_s: 0}\n")
    said = daemons.smp("config", "check", path)
    assert (said.returncode, said.stdout) == (5, "")
    assert f"{path}: a: " in said.stderr
    assert f"{path}: scan.every_s: " in said.stderr
    assert daemons.smp("run", "--config", path, cwd=tmp_path).returncode == 5
    assert daemons.smp("run", "--nonsense", cwd=tmp_path).returncode == 2
    assert [one.name for one in tmp_path.iterdir()] == ["smp.yaml"]
    path.write_text("scan: {every_s: 1}")
    answer = daemons.smp("config", "check", path, "--json")
    assert json.loads(answer.stdout) == {"file": str(path), "ok": True}


def test_a_daemon_uses_what_is_configured(tmp_path: Path) -> None:
    """Two roots, and the log in a file."""
    roots, log = [tmp_path / "one", tmp_path / "two"], tmp_path / "logs/smp.log"
    text = f"roots: [{roots[0]}, {roots[1]}]\nlog: {{file: {log}}}\n"
    config = written(tmp_path / "smp.yaml", text)
    daemon = daemons.Daemon([], tmp_path / "stderr", config)
    try:
        wait_until(lambda: log.exists() and log.read_text().count('"message": "ready"') == 2, "both are led")
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    said = [json.loads(line) for line in log.read_text().splitlines()]
    ready = [line["root"] for line in said if line["event"] == "ready"]
    assert ready == [str(root) for root in roots]
    assert (tmp_path / "stderr").read_text() == ""


# The table of commands


def test_help_loads_nothing_but_click(tmp_path: Path) -> None:
    """Each command's module is imported when that command is asked for."""
    program = ("import sys; from smp_daemon.cli import main\ntry: main()\nexcept SystemExit: pass\n"
               f"print('loaded:', *(name for name in {HEAVY} if name in sys.modules))")  # fmt: skip
    said = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True,
                          check=True, cwd=tmp_path)  # fmt: skip
    assert said.stdout.splitlines()[-1].strip() == "loaded:"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_they_say_themselves(name: str) -> None:
    """The table is there so that no command need be imported for its line of help."""
    command = smp.get_command(click.Context(smp), name)
    assert command is not None
    assert command.name == name
    first = (command.help or "").split("\n")[0].split(";")[0].split(":")[0]
    assert first.rstrip(".") == COMMANDS[name][1].rstrip(".")


def test_help_shows_every_command_in_its_group(tmp_path: Path) -> None:
    """The commands of every day come first, the rare ones last."""
    shown = daemons.smp("--help", cwd=tmp_path, env={**os.environ, "COLUMNS": "80"}).stdout
    titles = re.findall(r"^([A-Z]\w+(?: \w+)*):$", shown, re.MULTILINE)
    assert titles == ["Options", "Start", "Write and ask", "Look after", "Privacy", "Move",
                      "Rarely needed"]  # fmt: skip
    assert re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE) == list(COMMANDS)
