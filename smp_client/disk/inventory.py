"""`summary.yaml` and `deletion-record.yaml`: the bundles of a session, for people.

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
    """Return the file for people in a directory, and its content; None where it has no bundle."""
    place, _, session = directory.partition("/")
    if place == ARCHIVED:
        return f"{directory}/{SUMMARY}", _summary(tree, f"{directory}/{ARCHIVE}")
    return f"{directory}/{RECORD}", _deletions(tree, directory, session)


def manifests(tree: Tree, directory: str) -> Iterator[tuple[str, Manifest]]:
    """Yield the manifest of every bundle in a directory that can be read, with its path."""
    for path in bundle.paths(tree, directory):
        try:
            yield path, bundle.read_manifest(tree, path)
        except SMPError:
            continue  # `smp check` reports it


def _summary(tree: Tree, path: str) -> bytes | None:
    if not tree.exists(path):
        return None
    try:
        archived = bundle.read_manifest(tree, path)
    except SMPError as error:
        return render_mapping("archive", {"state": "unreadable", "reason": str(error)})
    said: dict[str, Any] = {"state": "archived", "archived_at": archived.at}
    said |= {"reason": archived.why, **archived.facts}
    said["total_bytes"] = sum(item.length for item in archived.items)
    said["archive"] = {"file": ARCHIVE, "bytes": tree.stat(path).st_size}
    said["members"] = [
        {"path": item.file, "bytes": item.length, "sha256": item.sha256} for item in archived.items
    ]
    return render_mapping("archive", said)


def _deletions(tree: Tree, directory: str, session: str) -> bytes | None:
    paths = bundle.paths(tree, directory)
    if not paths:
        return None
    found = sorted(manifests(tree, directory), key=lambda one: one[1].at)
    said: dict[str, Value] = {"session_id": session}
    if found:
        said |= _deletion(found[-1][1])
    said |= {"deleted_items": [], "recovery_deadline": found[-1][1].until if found else None}
    said["backup_location"] = found[-1][0] if found else paths[-1]
    items: list[Value] = []
    for path, manifest in found:
        if path.endswith(f"/{BACKUP}"):
            said["deleted_session"] = {
                **_deletion(manifest),
                "recovery_deadline": manifest.until,
                "was": manifest.facts.get("was"),
                "files": len(manifest.items),
                "total_bytes": sum(item.length for item in manifest.items),
            }
            continue
        for item in manifest.items:
            entry: dict[str, Value] = {
                "type": item.type,
                "id": item.id,
                "timestamp": item.timestamp,
            }
            entry |= {"reason_specific": manifest.why, "deleted_at": manifest.at}
            entry |= {"deleted_by": manifest.by, "recovery_deadline": manifest.until}
            entry |= {"file": item.file, "batch": manifest.batch, "backup_location": path}
            items.append(entry | ({"action": "anonymize"} if manifest.kind == "undo" else {}))
    return render_mapping("deletion", {**said, "deleted_items": items})


def _deletion(manifest: Manifest) -> dict[str, Value]:
    return {"deleted_at": manifest.at, "deleted_by": manifest.by, "reason": manifest.why}
