"""What produced a result: versions of the packages and the commit of the source."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

PACKAGES = {
    "rigor": "rigor-rl",  # what the package index calls it
    "torch": "torch",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "ale-py": "ale-py",
    "hydra-core": "hydra-core",
    "wandb": "wandb",
}


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
    """Return the git commit of rigor's own source, with `+dirty` when tracked files differ from it.

    None when the source is not under version control, as in an installed wheel: the commit of some
    repository around the virtual environment would be a wrong answer, so this very file must be
    tracked.
    """
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    head = _git(here.parent, "rev-parse", "HEAD")
    changes = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return head + ("+dirty" if changes else "") if head else None


def _git(folder: Path, *arguments: str) -> str | None:
    # Inside a git hook GIT_DIR and its like point at another repository.
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
