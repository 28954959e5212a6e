"""Provenance of a result: versions of the packages and the commit of the source."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = {
    "rigor": "rigor-rl",  # its name in the package index
    "torch": "torch",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "ale-py": "ale-py",
    "hydra-core": "hydra-core",
    "wandb": "wandb",
}


# Cached, because a process goes on with the code that it has imported.
@functools.cache
def _source() -> tuple[str | None, tuple[tuple[str, str | None], ...]]:
    return commit(), tuple(versions().items())


def source() -> dict[str, Any]:
    """Return what this process runs: `commit` and `versions`."""
    head, packages = _source()
    return {"commit": head, "versions": dict(packages)}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Name the differences between two results of `source`; empty if the code is the same."""
    was, is_now = before.get("versions") or {}, now.get("versions") or {}
    pairs = [("commit", before.get("commit"), now.get("commit"))]
    pairs += [(name, was.get(name), is_now.get(name)) for name in ("python", *PACKAGES)]
    return "; ".join(f"{name} {old} before, {new} now" for name, old, new in pairs if old != new)


def versions() -> dict[str, str | None]:
    """Return the versions of the packages, from their metadata; None when not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    found["platform"] = platform.platform()
    return found


def commit() -> str | None:
    """Return the git commit of rigor's source, as `1a2b+dirty.5d6e` if tracked files have changed.

    The digits behind `+dirty` are a digest of the changes. None when git does not track this file,
    as in an installed wheel: a repository around the virtual environment has a commit too, which
    would be the wrong one.
    """
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    head = _git(here.parent, "rev-parse", "HEAD")
    if head is None or not _git(here.parent, "status", "--porcelain", "--untracked-files=no"):
        return head
    changed = _git(here.parent, "diff", "HEAD") or ""
    return f"{head}+dirty.{hashlib.sha256(changed.encode()).hexdigest()[:8]}"


def _git(folder: Path, *arguments: str) -> str | None:
    # Inside a git hook, GIT_DIR and similar variables point at another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            env=environment,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
