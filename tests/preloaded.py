"""Commands in forks of a process that has already imported what they import.

A new interpreter needs seconds to import torch and the rest, to build schemas and grammars, and to
find fonts, which is most of the time of a small run. A fork has them at once. Otherwise it is a
process like any other, with its own arguments, environment variables, directory and output.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODULES = (
    "scipy.stats",
    "pandas",
    "gymnasium.envs.classic_control",
    "gymnasium.wrappers",
    "rich.progress",
    "rich.table",
    "rigor.cli.train",
    "rigor.learning.run",
)


class Fork:
    """A command that was started, with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, server: "Preloaded", pid: int, out: Path, err: Path) -> None:
        self._server, self._out, self._err = server, out, err
        self.pid, self.returncode = pid, None

    def poll(self, seconds: float = 0.0) -> int | None:
        """Return the exit code, or None if the command still runs after so many seconds."""
        if self.returncode is None:
            self.returncode = self._server.ask({"pid": self.pid, "seconds": seconds})
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 600.0) -> tuple[str, str]:
        """Wait for the end, and return the output and the error output."""
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self._out.read_text(), self._err.read_text()


class Preloaded:
    """The process that forks, started with this object; it ends with the present process."""

    def __init__(self) -> None:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env=env | {"OMP_NUM_THREADS": "1"},  # as a command would set it before it imports torch
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._place = tempfile.TemporaryDirectory(prefix="preloaded-")
        self._n = 0
        atexit.register(self._end)

    def start(self, module: str, argv: list[str], cwd: Path, env: dict[str, str]) -> Fork:
        """Call `main()` of a module in a fork, as a new interpreter would.

        Args:
          argv: the file of the command, whose directory is searched for modules, and its arguments.
        """
        self._n += 1
        out, err = (Path(self._place.name, f"{self._n}.{name}") for name in ("out", "err"))
        asked = {"module": module, "argv": argv, "cwd": cwd, "env": env, "out": out, "err": err}
        return Fork(self, self.ask(asked), out, err)

    def ask(self, question: dict) -> int | None:
        """Return the process's answer to a question."""
        print(json.dumps(question, default=str), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def _end(self) -> None:
        self._process.communicate()
        self._place.cleanup()


@functools.cache
def preloaded() -> Preloaded:
    """Return the process that forks for these tests."""
    return Preloaded()


def main() -> None:
    """Answer each line on standard input: fork and print the fork's id, or wait for a fork."""
    for name in MODULES:
        importlib.import_module(name)
    warm_up()
    gc.freeze()  # else each fork would copy the memory of these modules at its first collection
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        if "module" not in asked:
            answer = ended(**asked)
        elif not (answer := os.fork()):
            return run(**asked)
        print(json.dumps(answer), flush=True)
    return None


def warm_up() -> None:
    """Fill the caches that a command fills first: schemas, the grammars of Hydra, and fonts."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from omegaconf import OmegaConf

    from rigor.config import config

    config.register()
    OverridesParser.create().parse_overrides(["a=1", "b/c=x/y", "d=1e-3,2", "e=[1]", "f={g:'x'}"])
    OmegaConf.to_container(OmegaConf.create({"a": "${fraction:1,${.b},1}", "b": 1}), resolve=True)
    figure = Figure(layout="constrained")
    figure.subplots().plot([1, 2], label="x")
    FigureCanvasAgg(figure).print_png(io.BytesIO())


def ended(pid: int, seconds: float) -> int | None:
    """Return the exit code of a fork, or None if it still runs after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.005)


def run(module: str, argv: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    """Give this process what a new one would have, and call `main()` of the module."""
    for number, file in enumerate((os.devnull, out, err)):
        opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    sys.path[:0] = [os.path.dirname(argv[0]), *filter(None, env.get("PYTHONPATH", "").split(":"))]
    importlib.import_module(module).main()


if __name__ == "__main__":
    main()
