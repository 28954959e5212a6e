"""What W&B has received of a run: a file beside W&B's own, so that no row is left out.

W&B writes in a process of its own, which loses the newest rows when the run is killed. The metrics
file has them all. Rows after the last session that ended well are therefore sent again.
"""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rigor.errors import UserError
from rigor.runs.disk import atomic_write
from rigor.runs.metrics import last_values
from rigor.runs.read_json import read_object

RECORDED = ("online", "offline")
"""The modes of W&B in which it keeps rows."""


@dataclass
class MirrorRecord:
    """The sessions of a run that W&B has received.

    folder: `wandb/` of the run. mode: of the newest session. steps: agent steps of the last row
    that W&B surely has; -1 before the first. sessions: the directories of the sessions that are
    settled, because they ended well or their rows were sent again.
    """

    folder: Path
    mode: str
    steps: int = -1
    sessions: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, run_directory: Path) -> "MirrorRecord | None":
        """Return the record of a run, None if it has none that can be read."""
        folder = run_directory / "wandb"
        found = read_object(folder / "mirrored.json") or {}
        mode, steps, sessions = (found.get(key) for key in ("mode", "steps", "sessions"))
        if mode not in RECORDED or type(steps) is not int or not isinstance(sessions, list):
            return None
        return cls(folder, mode, steps, [str(name) for name in sessions])

    def begin(self) -> None:
        """Remove the offline files of killed sessions, whose rows are sent again, and write.

        Files with tables of episodes stay, since the metrics file has no episodes, and so do files
        that were uploaded. Their rows are then in W&B twice.
        """
        for session in self.unsettled():
            uploaded = any(session.glob("*.synced"))
            if session.name.startswith("offline-") and not uploaded and not _has_tables(session):
                shutil.rmtree(session, ignore_errors=True)
            else:
                self.sessions.append(session.name)
        self.write()

    def end(self, session: str, steps: int) -> None:
        """Write that a session ended well, with its last row at `steps` agent steps."""
        self.sessions.append(session)
        self.steps = max(self.steps, steps)
        self.write()

    def unsettled(self) -> list[Path]:
        """Return the directories of sessions that were killed, oldest first."""
        found = [*self.folder.glob("offline-run-*"), *self.folder.glob("run-*")]
        return sorted(path for path in found if path.name not in self.sessions)

    def lacks_rows(self, metrics: Path) -> bool:
        """Return whether a metrics file has rows that W&B may not have."""
        try:
            return last_values(metrics).get("steps", -1) > self.steps
        except UserError:
            return False

    def write(self) -> None:
        """Write the record."""
        content = {key: value for key, value in asdict(self).items() if key != "folder"}
        atomic_write(self.folder / "mirrored.json", json.dumps(content, indent=1) + "\n")


def _has_tables(session: Path) -> bool:
    return (session / "files" / "media").exists()
