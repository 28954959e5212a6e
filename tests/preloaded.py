"""Commands in forks of a process that has already imported the large packages.

A new interpreter needs seconds to import torch and the other packages below, which is most of the
time of a small run. A fork has them at once. Otherwise it is a process like any other, with its own
arguments, environment variables, directory and output, and it imports rigor itself.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "torch",
    "torch._dynamo",  # imported by the first optimiser
    "scipy.special",
    "scipy.stats",
    "hydra",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "pandas",
    "rich.console",
    "rich.progress",
    "rich.table",
)


class Preloaded:
    """The process that forks, started with this object; it ends with the present process."""

    def __init__(self) -> None:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env=env | {"OMP_NUM_THREADS": "1"},  # as a command would set it before it imports torch
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        atexit.register(self._process.communicate)

    def run(self, module: str, argv: list[str], place: Path, env: dict[str, str], **where) -> int:
        """Run the command of a module in a fork, and return its exit code.

        Args:
          argv: the command's name and its arguments.
          place: its working directory.
          where: `out`, `err`: files of its output; `path`: where it looks for modules first;
            `timeout` [s], after which it is killed.
        """
        timeout = where.pop("timeout")
        asked = {"module": module, "argv": argv, "place": str(place), "env": env, **where}
        self._process.stdin.write(f"{json.dumps(asked)}\n".encode())
        pid = int(self._process.stdout.readline())
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            os.kill(pid, signal.SIGKILL)
        return int(self._process.stdout.readline())


@functools.cache
def preloaded() -> Preloaded:
    """Return the process that forks for these tests."""
    return Preloaded()


def main() -> None:
    """Fork for each line on standard input, and print the fork's id and its exit code."""
    for name in PACKAGES:
        importlib.import_module(name)
    gc.freeze()  # else each fork would copy the memory of these packages at its first collection
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if not pid:
            return run(**json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def run(
    module: str, argv: list[str], place: str, env: dict[str, str], out: str, err: str, path: str
) -> None:
    """Run a command in this process as a new interpreter would."""
    for number, file in enumerate((os.devnull, out, err)):
        opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    sys.path[:0] = [path, *filter(None, env.get("PYTHONPATH", "").split(":"))]
    importlib.import_module(module).main()


if __name__ == "__main__":
    main()
