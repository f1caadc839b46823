"""Memories out of a tree and into one: `smp export` and `smp import`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

from smp_client.model.layout import DELETED

from . import output as out
from .arguments import CONDITIONS, KEPT, SELECTING, Call, command, find_id
from .privacy import NAMING, limits, naming

_STANDARD = "-"  # stdin, or stdout


@command(
    f"[SESSION]... {SELECTING}",
    "--all  Every session, archived ones too, and the memories that hold everywhere.",
    "--format yaml|json|jsonl|markdown|md|yml  Else the ending of FILE says it; without one, yaml.",
    "--exact  A bundle (tar.gz) of the files themselves.",
    "--layout jsonl|jsonl-per-kind|jsonl-checked  Into a folder FILE, for other programs.",
    "-o, --output FILE:-  Where to; else stdout.",
    "--force  Overwrite FILE.",
    "--deleted  Name deleted memories, so that an import deletes them too.",
    "--anonymize  With placeholders in the place of names; see smp anonymize.",
    *NAMING,
)
def export(call: Call) -> None:
    """Write sessions, or everything, into one file; smp import takes it in again.

    SESSION may be archived, or global for what holds everywhere. Keep the file as safe as the
    sessions are.

    \b
    smp export latest --type decision --since "last 7 days" -o decisions.yaml
    """
    layout, anonymous = call.layout, call.anonymize
    conditions = call.given(CONDITIONS)
    is_stdout = call.output in (_STANDARD, "/dev/stdout")
    call.check(
        (bool(call.session) == call.all, "Say which: one or more sessions, or --all for all."),
        ((call.json or layout) and is_stdout, "--json and --layout go with -o FILE."),
        (call.exact and (call.format or layout or anonymous or conditions),
         "--exact holds whole files: it goes with --deleted and --force alone."),
        ((call.name or call.project or call.keep) and not anonymous,
         "--name, --project and --keep go with --anonymize."),
    )  # fmt: skip
    memory = call.memory()
    places = (*KEPT, DELETED) if call.deleted else KEPT
    chosen = None if call.all else [find_id(memory, name, *places) for name in call.session]
    changed = memory.privacy.anonymous_export(chosen, **naming(call)) if anonymous else None
    how: dict[str, Any] = {"transform": changed, **conditions}
    if layout:
        done = memory.exchange.export_layout(call.output, chosen, layout=layout, **how)
    else:
        target = sys.stdout.buffer if is_stdout else call.output
        how |= {"format": call.format, "exact": call.exact, "deleted": call.deleted,
                "overwrite": call.force}  # fmt: skip
        done = memory.exchange.export(target, chosen, **how)
    sys.stdout.flush()
    more: dict[str, Any] = {"file": str(Path(call.output).absolute())}
    if changed:
        done.problems += changed.problems
        done.notes += limits(changed.agents)
        more |= {"replaced": changed.placeholders.counts()}

    def print_counts() -> None:
        counts, parts = done.counts, "files" if call.exact else "entries"
        if not is_stdout:
            size = f"{counts[parts]:,} {parts}, {out.short_size(counts['bytes'])}"
            out.tell(f"{out.counted(counts['sessions'], 'session')} as {size}, in {call.output}")

    call.finish(done, body=print_counts, **more)


@command(
    "PATH --dry-run",
    "--migrate  With a backup before it, and priorities and a comparison after it.",
    "--verify  Only compare: counts, and the ids that are missing or differ.",
    "--replace  Same id, other content: take theirs; else ours stays.",
    "--no-extract  Leave memories that a conversation states (Decision: …) in its turns.",
)
def import_(call: Call) -> None:
    """Take in an export, another tree, other layouts or conversation logs; it may be repeated.

    PATH may be a project or one session; - is an export on stdin. A line that cannot be read is
    reported, and the rest is taken in.

    \b
    smp import ~/shop --migrate
    """
    from smp_client.exchange.layouts.recognition import recognise

    path, is_import = call.path, not call.migrate and not call.verify
    call.check(
        (call.migrate and (call.verify or call.dry_run), "--migrate goes alone."),
        (path == _STANDARD and not is_import, "Give a file or a folder, not stdin."),
    )
    memory = call.target()
    memory.require_room()  # before a backup is made beside it
    gc.disable()  # no entry refers to itself, and to look for such costs a fifth of the time
    how: dict[str, Any] = {"replace": call.replace, "extract": not call.no_extract}
    recognition = None if path == _STANDARD else recognise(path, memory.root)
    layouts = [*recognition.found.values()] if recognition else []
    if not call.json:
        for one in layouts:
            out.tell(f"found {one.layout} ({out.listed(one.files, 3)})")
    with out.progress("entries read:") as advance:
        how["advance"] = advance
        source = recognition or sys.stdin.buffer
        if call.verify:
            done = memory.exchange.verify(source, extract=how["extract"])
        elif call.migrate and recognition:
            done = memory.exchange.migrate(recognition, **how)
        else:
            done = memory.exchange.import_(source, **how, dry_run=call.dry_run)
    found = [{"layout": one.layout, "path": str(one.source.path), "files": one.files}
             for one in layouts]  # fmt: skip
    call.finish(done, nothing="There is nothing to import.", found=found)
