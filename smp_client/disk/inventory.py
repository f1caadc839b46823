"""`summary.yaml` and `deletion-record.yaml`: what the bundles of a session hold, for people.

Both are rendered from the manifests beside them, whenever a bundle comes or goes. SMP itself never
decides by them, so they can be removed, and are made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..model.errors import SMPError
from ..model.layout import ARCHIVED
from ..text.mapping import render_mapping
from ..text.values import Value
from . import bundle
from .bundle import Manifest
from .scopes import ARCHIVE, BACKUP
from .tree import Tree

SUMMARY, RECORD = "summary.yaml", "deletion-record.yaml"


def describe(tree: Tree, directory: str) -> None:
    """Render the file for people in `archived/{session}` or `deleted/{session}` anew."""
    name, said = rendered(tree, directory)
    if said is None:
        tree.unlink(name)
        tree.remove_empty(directory)
    else:
        tree.replace_derived(name, said)


def rendered(tree: Tree, directory: str) -> tuple[str, bytes | None]:
    """Return the file for people in a directory, and what belongs into it; None where there is none."""
    place, _, session = directory.partition("/")
    if place == ARCHIVED:
        return f"{directory}/{SUMMARY}", _summary(tree, directory)
    return f"{directory}/{RECORD}", _deletions(tree, directory, session)


def manifests(tree: Tree, directory: str) -> Iterator[tuple[str, Manifest]]:
    """Yield the manifest of every bundle in a directory that can be read, with its path."""
    for path in bundle.paths(tree, directory):
        try:
            yield path, bundle.read_manifest(tree, path)
        except SMPError:
            continue  # `smp check` reports it


def _summary(tree: Tree, directory: str) -> bytes | None:
    path = f"{directory}/{ARCHIVE}"
    if not tree.exists(path):
        return None
    try:
        archived = bundle.read_manifest(tree, path)
    except SMPError as error:
        return render_mapping("archive", {"state": "unreadable", "reason": str(error)})
    said: dict[str, Any] = {"state": "archived", "archived_at": archived.at, "reason": archived.why, **archived.facts}
    members: list[Value] = [{"path": item.file, "bytes": item.length, "sha256": item.sha256} for item in archived.items]
    said["total_bytes"] = sum(item.length for item in archived.items)
    said["archive"] = {"file": ARCHIVE, "bytes": tree.stat(path).st_size}
    return render_mapping("archive", {**said, "members": members})


def _deletions(tree: Tree, directory: str, session: str) -> bytes | None:
    found = sorted(manifests(tree, directory), key=lambda one: one[1].at)
    if not bundle.paths(tree, directory):
        return None
    items: list[Value] = []
    for path, manifest in found:
        if path.endswith(f"/{BACKUP}"):
            continue
        for item in manifest.items:
            items.append({
                "type": item.type, "id": item.id, "timestamp": item.timestamp, "reason_specific": manifest.why,
                "deleted_at": manifest.at, "deleted_by": manifest.by, "recovery_deadline": manifest.until,
                "file": item.file, "batch": manifest.batch, "backup_location": path,
                **({"action": "anonymize"} if manifest.kind == "undo" else {}),
            })  # fmt: skip
    newest = found[-1][1] if found else None
    said: dict[str, Value] = {"session_id": session}
    if newest is not None:
        said |= {"deleted_at": newest.at, "deleted_by": newest.by, "reason": newest.why}
    said |= {"deleted_items": items, "recovery_deadline": newest.until if newest else None}
    said["backup_location"] = found[-1][0] if found else bundle.paths(tree, directory)[-1]
    whole = next((manifest for path, manifest in found if path.endswith(f"/{BACKUP}")), None)
    if whole is not None:
        said["deleted_session"] = {
            "deleted_at": whole.at, "deleted_by": whole.by, "reason": whole.why, "recovery_deadline": whole.until,
            "was": whole.facts.get("was"), "files": len(whole.items),
            "total_bytes": sum(item.length for item in whole.items),
        }  # fmt: skip
    return render_mapping("deletion", said)
