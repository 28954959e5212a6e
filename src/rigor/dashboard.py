"""`rigor-dashboard`: the W&B workspace of a sweep, printed or saved.

Exit codes: 0 done, 2 the user's mistake or no way to W&B, 1 W&B refused.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

from rigor import command
from rigor.errors import RunFailed, UserError
from rigor.tracking.disk import atomic_write

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

HELP = """\
Arrange a W&B workspace for a sweep: curves by game and agent, final scores,
improvement over the baselines, throughput and failures. Prints what would stand
in it; --save makes it in W&B, and again what it made before. --live needs no
account: it shows the curves of the runs in this terminal, while they train, too.
"""


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-dashboard", run)


def run(arguments: Sequence[str]) -> None:
    """Do what the command line asks.

    Raises:
      UserError: an argument or the directory does not fit, or --save has no way to W&B.
    """
    given = _parser().parse_args(arguments)
    directory = Path(given.directory).expanduser()
    from rigor.launch.sweep import read_manifest  # --help must be quick
    from rigor.tracking.wandb_login import refuse_no_way

    paths = read_manifest(directory).runs
    if given.live:
        _watch(paths)
        return
    if given.save:
        refuse_no_way("the dashboard is not saved")
    from rigor.report.runs import load
    from rigor.report.workspace import outline, workspace_of

    entity = os.environ.get("WANDB_ENTITY") or (_own_entity() if given.save else "ENTITY")
    made = workspace_of(directory.resolve().name, [load(path) for path in paths], entity)
    if given.save:
        print(_save(made, directory))
    elif given.json:
        print(json.dumps(json.loads(made._to_model().model_dump_json(by_alias=True)), indent=1))
    else:
        print(outline(made, len(paths)))


def _watch(paths: Sequence[Path]) -> None:
    """Show the runs in W&B's terminal dashboard, which wants their files in one folder.

    Raises:
      UserError: there is no terminal, or no run was mirrored yet.
    """
    written = [one for path in paths for one in sorted((path / "wandb").glob("*run-*-*"))]
    if not written:
        raise UserError("no run of the sweep has W&B files yet (or tracker=none)")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--live needs a terminal")
    with tempfile.TemporaryDirectory() as folder:
        for one in written:
            os.symlink(one.resolve(), Path(folder) / one.name)
        subprocess.run([sys.executable, "-m", "wandb", "leet", folder], check=False)


def _own_entity() -> str:
    """Return the user's own entity, as W&B says."""
    import wandb

    with _refusals():
        return str(wandb.Api().default_entity)


def _save(made: "Workspace", directory: Path) -> str:
    """Save a workspace, over the one that was saved for this sweep before, and return its address.

    Raises:
      RunFailed: W&B refuses.
    """
    kept = directory / "dashboard.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if (before.get("entity"), before.get("project")) == (made.entity, made.project):
        made._internal_name, made._internal_id = before["name"], before["id"]
    with _refusals(), redirect_stderr(io.StringIO()):  # W&B tells where it is there, too
        made.save()
        place = str(made.url)
    saved = {"name": made._internal_name, "id": made._internal_id, "url": place}
    saved |= {"entity": made.entity, "project": made.project}
    atomic_write(kept, json.dumps(saved, indent=1) + "\n")
    return place


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what W&B's client raises inside the block into one line."""
    from requests import RequestException
    from wandb.errors import Error

    try:
        yield
    except (Error, RequestException, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunFailed(f"W&B did not take it: {lines[0]}") from error


def _parser() -> argparse.ArgumentParser:
    parser = command.Parser(
        "rigor-dashboard",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="SWEEP_DIR", help="OUT/sweeps/NAME")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print it as W&B would get it")
    what.add_argument("--live", action="store_true", help="curves in this terminal; q ends it")
    what.add_argument("--save", action="store_true", help="save it in W&B; needs a login")
    return parser


if __name__ == "__main__":
    main()
