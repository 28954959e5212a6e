"""Short names of runs: what their directory names leave out is read from their configs."""

import re
from collections.abc import Sequence
from pathlib import Path

from rigor.errors import UserError
from rigor.tracking.identity import settings
from rigor.tracking.rundir import RunDirectory

_DIRECTORY = re.compile(r"(?P<base>.*)-(?P<seed>s\d+)-[0-9a-f]{8}$")


def curve_labels(paths: Sequence[Path | str]) -> list[str]:
    """Return a label of each run for `learning_curves`, which groups what differs in the seed.

    It is the directory's name without its hash, and the settings that tell runs apart whose names
    do not: `gbwm-...-mean agent.lr=0.001 s0`.
    """
    labels = []
    for path, differs in zip(paths, distinctions(paths), strict=True):
        base, seed = _split(Path(path).name)
        labels.append(" ".join(part for part in (base, differs, seed) if part))
    return labels


def distinctions(paths: Sequence[Path | str]) -> list[str]:
    """Return, for each run, the settings that differ between runs of one name and one seed.

    Empty for most: names say what was chosen in the config groups. Configs are only read where a
    name and a seed come twice, for reading hundreds takes seconds.
    """
    members: dict[str, list[int]] = {}
    for i, path in enumerate(paths):
        members.setdefault(_split(Path(path).name)[0], []).append(i)
    found = [""] * len(paths)
    for group in members.values():
        seeds = [_split(Path(paths[i]).name)[1] for i in group]
        if len(set(seeds)) == len(seeds):
            continue
        configs = [_settings(Path(paths[i])) for i in group]
        keys = sorted({key for config in configs for key in config})
        # Compared as text: a value may be a list, which no set holds.
        telling = [key for key in keys if len({config.get(key, "") for config in configs}) > 1]
        for i, config in zip(group, configs, strict=True):
            found[i] = " ".join(f"{key}={config[key]}" for key in telling if key in config)
    return found


def _split(name: str) -> tuple[str, str]:
    match = _DIRECTORY.match(name)
    return (match["base"], match["seed"]) if match else (name, "")


def _settings(path: Path) -> dict[str, str]:
    try:
        config = RunDirectory(path).config()
    except UserError:
        return {}
    return {key: str(value) for key, value in settings(config).items() if key != "seed"}
