"""Whether worker processes can import a sweep's own classes, checked before a run is queued.

A worker finds installed modules, PYTHONPATH and the directory of the command. It does not find what
a script defines, modules beside a script in another directory, or environments that a script
registers.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rigor.config.own_code import named
from rigor.errors import UserError
from rigor.runs.job import Job

_PROGRAM = """
import importlib.util, json, sys
sys.path.append(sys.argv[1])
names, ids = json.loads(sys.argv[2])
missing = []
for name in names:
    try:
        found = importlib.util.find_spec(name) is not None and name != "__main__"
    except (ImportError, ValueError):
        found = False
    if not found:
        missing.append(name)
if ids:
    import gymnasium
    missing += [id for id in ids if id not in gymnasium.registry]
print(json.dumps(missing))
"""


def refuse_unimportable(jobs: Sequence[Job]) -> None:
    """Refuse classes and environments that a worker could not find.

    Raises:
      UserError: naming the key, the module or the environment, and where a worker looks.
    """
    keys: dict[str, str] = {}
    for job in jobs:
        for key, name in named(job.plain):
            keys[name.partition(":")[0] if ":" in name else name.rpartition(".")[0]] = key
    ids = {id for job in jobs if (id := _registered_here(job.plain["env"]))}
    if not keys and not ids:
        return
    # as `pool.start` starts a worker, which appends the directory of the command to its path
    command = [sys.executable, "-P", "-c", _PROGRAM, os.getcwd()]
    asked = json.dumps([sorted(keys), sorted(ids)])
    done = subprocess.run([*command, asked], capture_output=True, text=True, check=True)
    for name in json.loads(done.stdout.splitlines()[-1]):
        if name in ids:
            raise UserError(
                f"env.id={name}: a worker process does not know it, as only this process has "
                f"registered it; name its module, as in env.id=my_envs:{name}"
            )
        raise UserError(
            f"{keys[name]}: a worker process cannot import the module {name.partition('.')[0]}; "
            f"move it to {os.getcwd()}, install it, or add its directory to PYTHONPATH"
        )


def _registered_here(env: Mapping[str, Any]) -> str | None:
    """Return the id of a Gymnasium environment that this process has registered, if any."""
    id = env.get("id")
    loaded = sys.modules.get("gymnasium")  # else nobody can have registered one
    if loaded is None or ":" in str(id) or id not in loaded.registry:
        return None
    return str(id)
