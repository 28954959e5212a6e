"""`rigor-dashboard`: print or save the W&B workspace of a sweep.

Exit codes: 0 done, 2 a mistake of the user or no connection to W&B, 1 W&B refused.
"""

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

from rigor.cli import command
from rigor.errors import RunFailed, UserError
from rigor.runs.disk import atomic_write

if TYPE_CHECKING:
    from wandb_workspaces.workspaces import Workspace

HELP = """\
Arrange a W&B workspace for a sweep: curves by game and agent, final scores,
improvement over the baselines, throughput and failures. Prints an outline of the
workspace; --save creates it in W&B, or replaces the one that it created before.
--live needs no account: it shows the runs' curves in this terminal.
"""


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-dashboard", run)


def run(arguments: Sequence[str]) -> None:
    """Print, save or show the dashboard of the sweep.

    Raises:
      UserError: an argument or the directory is wrong, or --save has no connection to W&B.
    """
    given = _parser().parse_args(arguments)
    directory = Path(given.directory).expanduser()
    from rigor.launch.manifest import read_manifest  # here, so that --help is quick
    from rigor.runs.wandb_login import require_connection

    paths = read_manifest(directory).runs
    if given.live:
        _watch(paths)
        return
    if given.save:
        require_connection("the dashboard is not saved")
    from rigor.report.data.runs import load
    from rigor.report.page.workspace import outline, workspace_of

    entity = os.environ.get("WANDB_ENTITY") or (_own_entity() if given.save else "ENTITY")
    workspace = workspace_of(directory.resolve().name, [load(path) for path in paths], entity)
    if given.save:
        print(_save(workspace, directory))
    elif given.json:
        print(
            json.dumps(json.loads(workspace._to_model().model_dump_json(by_alias=True)), indent=1)
        )
    else:
        print(outline(workspace, len(paths)))


def _watch(paths: Sequence[Path]) -> None:
    """Show the runs in W&B's terminal dashboard, which reads them from a single folder.

    Raises:
      UserError: there is no terminal, or no run has W&B files yet.
    """
    sessions = [entry for path in paths for entry in sorted((path / "wandb").glob("*run-*-*"))]
    if not sessions:
        raise UserError("no run of the sweep has W&B files yet (or tracker=none)")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--live needs a terminal")
    with tempfile.TemporaryDirectory() as folder:
        for session in sessions:
            os.symlink(session.resolve(), Path(folder) / session.name)
        subprocess.run([sys.executable, "-m", "wandb", "leet", folder], check=False)


def _own_entity() -> str:
    """Return the user's default entity in W&B."""
    import wandb

    with _one_line_errors():
        return str(wandb.Api().default_entity)


def _save(workspace: "Workspace", directory: Path) -> str:
    """Save a workspace, replacing the earlier one of this sweep, and return its address.

    Raises:
      RunFailed: W&B refuses.
    """
    kept = directory / "dashboard.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if (before.get("entity"), before.get("project")) == (workspace.entity, workspace.project):
        workspace._internal_name, workspace._internal_id = before["name"], before["id"]
    with _one_line_errors(), redirect_stderr(io.StringIO()):  # where W&B prints the address too
        workspace.save()
        place = str(workspace.url)
    saved = {"name": workspace._internal_name, "id": workspace._internal_id, "url": place}
    saved |= {"entity": workspace.entity, "project": workspace.project}
    atomic_write(kept, json.dumps(saved, indent=1) + "\n")
    return place


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn errors of W&B's client inside the block into one line."""
    from requests import RequestException
    from wandb.errors import Error

    try:
        yield
    except (Error, RequestException, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunFailed(f"W&B refused: {lines[0]}") from error


def _parser() -> command.Parser:
    parser = command.Parser("rigor-dashboard", HELP)
    parser.add_argument("directory", metavar="SWEEP_DIR", help="OUT/sweeps/NAME")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--json", action="store_true", help="print the workspace as sent to W&B")
    mode.add_argument("--live", action="store_true", help="curves in this terminal; q quits")
    mode.add_argument("--save", action="store_true", help="save it in W&B; needs a login")
    return parser


if __name__ == "__main__":
    main()
