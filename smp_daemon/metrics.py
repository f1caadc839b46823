"""The numbers of a daemon, as text that Prometheus reads.

`.smp/metrics.prom` is replaced every 15 seconds; the textfile collector of node_exporter reads it.
Units are seconds and bytes. No label is the name of a session, so that their number stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from smp_client import SMPError
from smp_client.disk.place import Place
from smp_client.disk.tally import BUCKETS_S
from smp_client.index.status import DEGRADED, OK, Status

METRICS_FILE = ".smp/metrics.prom"
EVERY_S = 15.0
_CAP_BYTES = 1024 * 1024
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


Gauges = Mapping[str, float | Mapping[str, float] | None]


class Family(NamedTuple):
    """A metric: its type and what it says. `label` is the name of its one label, if it has one."""

    type: str
    says: str
    label: str = ""


FAMILIES = {
    "smp_up": Family(GAUGE, "1 while a daemon looks after the tree."),
    "smp_build_info": Family(GAUGE, "The version of the daemon.", "version"),
    "smp_heartbeat_timestamp_seconds": Family(GAUGE, "When the daemon wrote these numbers."),
    "smp_problems": Family(GAUGE, "Problems that smp status names."),
    "smp_settings_good": Family(GAUGE, "0 after a reload of settings that failed."),
    "smp_tree_sessions": Family(GAUGE, "Sessions by state.", "state"),
    "smp_memories": Family(GAUGE, "Memories in the index by kind.", "kind"),
    "smp_bytes": Family(GAUGE, "Bytes of the tree by place.", "place"),
    "smp_fullest_session_ratio": Family(GAUGE, "The fullest session's share of its quota."),
    "smp_sessions_near_limit": Family(GAUGE, "Sessions that hold 80 % of their quota or more."),
    "smp_index_lag_seconds": Family(GAUGE, "For how long the oldest changed file has waited."),
    "smp_unindexed_files": Family(GAUGE, "Changed files that wait to be indexed."),
    "smp_canary_seconds": Family(GAUGE, "How long a change takes through watcher and worker."),
    "smp_quarantined": Family(GAUGE, "Pieces in quarantine."),
    "smp_unreadable_files": Family(GAUGE, "Files that cannot be read as a whole."),
    "smp_watch_events_total": Family(COUNTER, "Changes by what became of them.", "result"),
    "smp_scan_seconds_total": Family(COUNTER, "Time that scans of the whole tree took."),
    "smp_job_last_success_timestamp_seconds": Family(GAUGE, "The last success of a job.", "job"),
    "smp_job_failures_total": Family(COUNTER, "Runs of a job in which something failed.", "job"),
    "smp_compactions_total": Family(COUNTER, "Sessions that were compacted."),
    "smp_compaction_freed_bytes_total": Family(COUNTER, "Bytes that compactions freed."),
    "smp_redactions_total": Family(COUNTER, "Secrets that writes did without.", "kind"),
    "smp_write_seconds": Family(HISTOGRAM, "How long writes of programs took."),
    "smp_query_seconds": Family(HISTOGRAM, "How long questions of programs took."),
    "smp_lock_waits_total": Family(COUNTER, "Writers that had to wait for a lock."),
    "smp_lock_wait_seconds_total": Family(COUNTER, "How long they waited."),
    "smp_lock_timeouts_total": Family(COUNTER, "Writers that gave up waiting for a lock."),
    "smp_quota_errors_total": Family(COUNTER, "Writes that did not fit into their session."),
    "smp_corruption_errors_total": Family(COUNTER, "Times that corrupt bytes were met."),
    "smp_storage_errors_total": Family(COUNTER, "Times that the disk refused."),
    "smp_client_lines_refused_total": Family(COUNTER, "Lines of programs that made no sense."),
}  # fmt: skip


@dataclass
class Histogram:
    """Durations in the buckets of the clients' tallies."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    seconds: float = 0.0

    def add(self, counts: Iterable[int], seconds: float) -> None:
        self.counts = [own + more for own, more in zip(self.counts, counts, strict=True)]
        self.seconds += seconds

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip([*map(repr, BUCKETS_S), "+Inf"], self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.seconds!r}"
        yield f"{name}_count {total}"


@dataclass
class Counters:
    """What a daemon has counted for one tree since it started."""

    values: dict[str, dict[str, float]] = field(default_factory=dict)  # by metric, then by label
    histograms: dict[str, Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, family in FAMILIES.items():
            if family.type == COUNTER:
                self.values[name] = {} if family.label else {"": 0}
            elif family.type == HISTOGRAM:
                self.histograms[name] = Histogram()

    def add(self, name: str, amount: float = 1, label: str = "") -> None:
        counts = self.values[name]
        counts[label] = counts.get(label, 0) + amount


def current(place: Place, status: Status) -> str:
    """Return the metrics that the daemon wrote last. Without a daemon, return what is known."""
    if status.health in (OK, DEGRADED):
        with suppress(OSError, SMPError):
            if place.tree.stat(METRICS_FILE).st_size <= _CAP_BYTES:
                return place.tree.read(METRICS_FILE).decode(errors="replace")
    root = status.root
    known: Gauges = {
        "smp_up": float(status.health in (OK, DEGRADED)),
        "smp_problems": len(status.problems),
        "smp_tree_sessions": root.sessions,
        "smp_quarantined": root.quarantined,
        "smp_unindexed_files": root.unindexed_files,
    }
    return render(known, None)


def render(gauges: Gauges, counters: Counters | None) -> str:
    """Return the text. A gauge that is None is not known, and left out."""
    lines: list[str] = []
    for name, family in FAMILIES.items():
        samples: list[str] = []
        if family.type == GAUGE:
            samples = list(_samples(name, family.label, gauges.get(name)))
        elif counters is None:
            continue
        elif family.type == HISTOGRAM:
            samples = list(counters.histograms[name].lines(name))
        else:
            samples = list(_samples(name, family.label, counters.values[name]))
        if samples:
            head = [f"# HELP {name} {family.says}", f"# TYPE {name} {family.type}"]
            lines += head + samples
    return "\n".join(lines) + "\n"


def _samples(name: str, label: str, value: float | Mapping[str, float] | None) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, number in sorted(value.items()):
            labels = f'{{{label}="{_escaped(key)}"}}' if label else ""
            yield f"{name}{labels} {float(number)!r}"
    elif value is not None:
        yield f"{name} {float(value)!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
