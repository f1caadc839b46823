"""The metrics: read by Prometheus's own parser, from real daemons, programs and errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from daemons import elsewhere, running, smp, status, wait_until
from prometheus_client.parser import text_string_to_metric_families

from smp_client import Memory
from smp_client.disk import tally
from smp_daemon.ingest.clients import TAKEN
from smp_daemon.metrics import FAMILIES, METRICS_FILE, Counters, render

TOP = Path(__file__).parent.parent.parent
Samples = dict[tuple[str, str], float]

WRITING = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session("s1")
for number in range(5):
    session.record_decision(f"Decision {number} with ghp_16C7e42F292c6912E7710c838347Ae178B4a", made_by="a")
session.search("decision")
"""
HOLDING = """
import sys
from smp_client import Memory
from smp_client.disk.locks import lock_all
memory = Memory(sys.argv[1])
with lock_all(memory.tree, "s1", ["findings.yaml"], 0.0, "holding for a test"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics that are written with every look, also in a daemon that is forked."""
    monkeypatch.setattr("smp_daemon.gauges.EVERY_S", 0.1)


def parsed(text: str) -> Samples:
    """Every sample by its name and its label's value, as Prometheus reads them."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(root: Path) -> Samples:
    file = root / METRICS_FILE
    return parsed(file.read_text()) if file.exists() else {}


def wait_for(root: Path, name: str, least: float, label: str = "") -> Samples:
    def found() -> Samples:
        samples = scraped(root)
        return samples if samples.get((name, label), 0) >= least else {}

    samples: Samples = wait_until(found, f"{name}{{{label}}} is {least} or more")
    return samples


def test_writes_and_questions_of_programs_reach_the_metrics(memory: Memory, tmp_path: Path) -> None:
    memory.create_session(id="s1", project="Shop")
    with running(memory.root, log=tmp_path / "log"):
        subprocess.run([sys.executable, "-c", WRITING, str(memory.root)], check=True)
        found = wait_for(memory.root, "smp_write_seconds_count", 5)
        assert found["smp_write_seconds_bucket", "+Inf"] == found["smp_write_seconds_count", ""]
        assert 0 < found["smp_write_seconds_sum", ""] < 60
        assert found["smp_query_seconds_count", ""] >= 1
        assert found["smp_redactions_total", "github_token"] == 5
        found = wait_for(memory.root, "smp_memories", 5, "decision")
        assert found["smp_up", ""] == 1
        assert found["smp_tree_sessions", "active"] == 1
        assert found["smp_bytes", "active"] > 1000
        assert found["smp_watch_events_total", "seen"] > 0
        assert found["smp_job_last_success_timestamp_seconds", "scan"] > 1_700_000_000
        assert not [key for key in found if "s1" in key[1]], "no label names a session"


@pytest.mark.slow  # the metrics are written every 15 s
def test_a_lock_timeout_is_logged_with_its_holder_and_counted(
    memory: Memory, tmp_path: Path
) -> None:
    memory.create_session(id="s1")
    with running(memory.root, log=tmp_path / "log") as daemon, elsewhere(HOLDING, memory.root):
        impatient = Memory(memory.root, lock_timeout_s=0.2).session("s1")
        with pytest.raises(Exception, match="is locked by pid"):
            impatient.record_finding("x", discovered_by="a")
        tally.flush(str(memory.root))
        found = wait_for(memory.root, "smp_lock_timeouts_total", 1)
        assert found["smp_lock_waits_total", ""] >= 1
        assert found["smp_lock_wait_seconds_total", ""] > 0.1
        (line,) = daemon.said("lock timeout")
        assert (line["level"], line["session_id"]) == ("warning", "s1")
        assert re.search(r"s1/findings.yaml is locked by pid \d+ \(.*python", line["problem"])


@pytest.mark.slow  # the metrics are written every 15 s
def test_corruption_is_logged_as_an_error_and_counted(memory: Memory, tmp_path: Path) -> None:
    session = memory.create_session(id="s1")
    session.record_decision("D", made_by="a")
    with running(memory.root, log=tmp_path / "log") as daemon:
        (memory.root / "active/s1/metadata.yaml").write_text("session: [\n")
        with pytest.raises(Exception, match="metadata"):
            session.metadata()
        wait_for(memory.root, "smp_corruption_errors_total", 1)
        (line,) = wait_until(lambda: daemon.said("corruption detected"), "it is logged")[:1]
        assert line["level"] == "error"
        wait_for(memory.root, "smp_unreadable_files", 1)


@pytest.mark.slow  # the metrics are written every 15 s
def test_lines_that_make_no_sense_cost_nothing_but_themselves(
    memory: Memory, tmp_path: Path
) -> None:
    memory.create_session(id="s1")
    bad = [
        b"[" * 900, b"{}", b'{"event": "tally"}', b'{"event": "error", "code": []}', b"\xff\xfe",
        b'{"event": "tally", "write": [NaN], "query": [], "waits": [1, -1], "redactions": {}}',
        b'{"event": "error", "code": "MEM_E002", "problem": "' + b"x" * 5000 + b'"}',
    ]  # fmt: skip
    good = json.dumps({"event": "error", "code": "MEM_E002", "session_id": "../x"}).encode()
    with running(memory.root, log=tmp_path / "log") as daemon:
        (memory.root / tally.CLIENT_LOG).write_bytes(b"\n".join([*bad, good, b""]))
        found = wait_for(memory.root, "smp_lock_timeouts_total", 1)
        assert found["smp_client_lines_refused_total", ""] == len(bad)
        assert daemon.said("lock timeout")[0]["session_id"] is None
        (memory.root / tally.CLIENT_LOG).symlink_to("/etc/passwd")
        wait_until(lambda: daemon.said("odd file"), "a link is not read")
        (memory.root / TAKEN).unlink(missing_ok=True)
        wait_until(lambda: status(memory.root)["health"] == "ok", "it goes on")


def test_the_file_of_programs_has_a_cap(memory: Memory) -> None:
    memory.create_session(id="s1")
    with elsewhere(HOLDING, memory.root):
        impatient = Memory(memory.root, lock_timeout_s=0.0).session("s1")
        file = memory.root / tally.CLIENT_LOG
        file.write_bytes(b"x" * tally.CAP_BYTES)
        with pytest.raises(Exception, match="locked"):
            impatient.record_finding("x", discovered_by="a")
        assert file.stat().st_size == tally.CAP_BYTES


def test_status_prints_the_metrics_with_and_without_a_daemon(
    memory: Memory, tmp_path: Path
) -> None:
    memory.create_session(id="s1")
    down = smp("status", "--root", memory.root, "--prometheus")
    assert down.returncode == 2
    assert parsed(down.stdout)["smp_up", ""] == 0
    assert parsed(down.stdout)["smp_tree_sessions", "not indexed"] == 1
    with running(memory.root, log=tmp_path / "log") as daemon:
        wait_for(memory.root, "smp_up", 1)
        up = smp("status", "--root", memory.root, "--prometheus")
        assert parsed(up.stdout)["smp_up", ""] == 1
        daemon.stop()
    assert scraped(memory.root)["smp_up", ""] == 0


def test_a_child_that_is_forked_does_not_count_again(memory: Memory) -> None:
    program = (
        "import os, sys; from smp_client import Memory;"
        "session = Memory(sys.argv[1]).create_session(id='s1');"
        "session.add_turn('a', 'x');"
        "child = os.fork();"
        "os.waitpid(child, 0) if child else sys.exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(memory.root)], check=True)
    lines = (memory.root / tally.CLIENT_LOG).read_text().splitlines()
    assert [sum(json.loads(line)["write"][:-1]) for line in lines] == [1]


# What comes with SMP for Prometheus and Grafana.


def metrics_in(expression: str) -> set[str]:
    names = set(re.findall(r"\bsmp_\w+", expression))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def test_the_dashboard_and_the_alerts_name_metrics_that_exist() -> None:
    dashboard = json.loads((TOP / "config/grafana-dashboard.json").read_text())
    shown = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    rules = yaml.safe_load((TOP / "config/alerts.yaml").read_text())["groups"][0]["rules"]
    alerts = [rule["expr"] for rule in rules]
    for expression in [*shown, *alerts]:
        assert metrics_in(expression), expression
        assert metrics_in(expression) <= FAMILIES.keys(), expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all({"alert", "expr", "labels", "annotations"} <= rule.keys() for rule in rules)
    unseen = FAMILIES.keys() - {name for one in [*shown, *alerts] for name in metrics_in(one)}
    assert unseen <= {"smp_build_info", "smp_client_lines_refused_total", "smp_scan_seconds_total",
                      "smp_unindexed_files"}  # fmt: skip


def test_every_metric_is_well_formed() -> None:
    gauges = {
        name: {'odd "label" \\ \n': 1.0} if family.label else 1.0
        for name, family in FAMILIES.items()
    }
    counters = Counters()
    counters.add("smp_redactions_total", 2, "password")
    families = {one.name: one for one in text_string_to_metric_families(render(gauges, counters))}
    for name, family in FAMILIES.items():
        if family.label and family.type == "counter" and name != "smp_redactions_total":
            continue  # nothing was counted
        assert families[name.removesuffix("_total")].type == family.type
    assert families["smp_bytes"].samples[0].labels == {"place": 'odd "label" \\ \n'}


