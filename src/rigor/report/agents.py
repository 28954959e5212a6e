"""Which agents and environments a report compares: runs grouped by what differs between them.

Two runs belong to one agent when nothing but the environment and the seed differs. An agent is
called by what tells it from the others: `time_consistent`, `time_aware horizons.quadrature=lower`.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from rigor.errors import UserError
from rigor.report.runs import NAMED, Run

BASELINES = (("variant", "time_inconsistent"), ("variant", "time_aware"))
"""What the paper compares with, in its figures 4 and 6."""

_GROUPS = ("variant", "agent", "discount", "risk")  # in the order of a label
_PARAMETERS = ("discount", "horizons", "risk")
_ORDER = ("time_consistent", "time_aware", "time_inconsistent")  # of variants; others come last


@dataclass
class Agent:
    """The runs of one agent, by environment.

    label: what tells it from the others. facts: the choices and settings behind the label.
    also: settings that differ between agents and follow from the label, `key=value`.
    runs: by the label of the environment, ordered by seed.
    """

    label: str
    facts: dict[str, str]
    also: list[str] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def matches(self, key: str, value: str) -> bool:
        """Tell whether a choice or a setting of all its runs has that value."""
        return all(_value(run, key) == value for run in self.members)

    @property
    def members(self) -> list[Run]:
        """All its runs."""
        return [run for group in self.runs.values() for run in group]


def agents_of(runs: Sequence[Run]) -> list[Agent]:
    """Group runs into agents, ordered by variant and label."""
    differing = [group for group in _GROUPS if len({run.choices[group] for run in runs}) > 1]
    told = [{group: run.choices[group] for group in differing} for run in runs]
    # Defaults differ from one class of environment to the next: that makes no other agent.
    kinds, environments = [_kind(run) for run in runs], environment_labels(runs)
    for kind in dict.fromkeys(kinds):
        members = [i for i, one in enumerate(kinds) if one == kind and runs[i].settings]
        there = [(environments[i], runs[i]) for i in members]
        keys = [key for key in _agent_keys(run for _, run in there) if not _follows(key, there)]
        _split(runs, told, members, keys)
    if not differing:
        common = {group: runs[0].choices[group] for group in _GROUPS if runs[0].choices[group]}
        told = [one or common for one in told]
    agents: dict[str, Agent] = {}
    for run, facts, environment in zip(runs, told, environments, strict=True):
        label = " ".join(v if k in _GROUPS else f"{k}={v}" for k, v in facts.items())
        one = agents.setdefault(label, Agent(label, facts))
        one.runs.setdefault(environment, []).append(run)
    for one in agents.values():
        for group in one.runs.values():
            group.sort(key=lambda run: (run.seed is None, run.seed or 0))
    ordered = sorted(agents.values(), key=_place)
    _tell_the_rest(ordered, set(differing))
    return ordered


def environment_labels(runs: Sequence[Run]) -> list[str]:
    """Return what the environment of each run is called: its name, and the settings that differ."""
    told = [{"env": run.choices["env"]} for run in runs]
    for name in {run.choices["env"] for run in runs}:
        members = [i for i, run in enumerate(runs) if run.choices["env"] == name and run.settings]
        keys = {key for i in members for key in runs[i].settings if key.startswith("env.")}
        _split(runs, told, members, sorted(keys))
    return [
        " ".join(v if k == "env" else f"{k.removeprefix('env.')}={v}" for k, v in facts.items())
        for facts in told
    ]


def baseline_of(agent: Agent, agents: Sequence[Agent], key: str, value: str) -> Agent | None:
    """Return the agent to compare with: it has key=value and most other facts of `agent`.

    None for a baseline itself, and where no agent has that value.
    """
    candidates = [one for one in agents if one.runs and one.matches(key, value)]
    if agent in candidates or not candidates:
        return None
    return max(candidates, key=lambda one: len(one.facts.items() & agent.facts.items()))


def refuse_no_baseline(agents: Sequence[Agent], key: str, value: str) -> None:
    """Raise a `UserError` that names the values there are when no agent has key=value."""
    if any(one.matches(key, value) for one in agents):
        return
    there = sorted({_value(run, key) for one in agents for run in one.members} - {""})
    way_out = f"choose {' or '.join(there)}" if there else f"no run has a setting {key}"
    raise UserError(f"baseline {key}={value}: no agent has it; {way_out}")


def _place(agent: Agent) -> tuple[int, str]:
    variant = agent.facts.get("variant", "")
    return _ORDER.index(variant) if variant in _ORDER else len(_ORDER), agent.label


def _kind(run: Run) -> tuple[str, str]:
    target = str(run.settings.get("env._target_", ""))
    return target, str(run.settings.get("env.id", ""))


def _agent_keys(runs: Iterable[Run]) -> list[str]:
    keys = {key for run in runs for key in run.settings}
    return sorted(key for key in keys if key != "seed" and not key.startswith("env."))


def _follows(key: str, runs: Sequence[tuple[str, Run]]) -> bool:
    """Tell whether a setting of training only follows the environment, here with its label.

    Such as more steps for a longer problem: that makes no other agent.
    """
    values = {(name, _value(run, key)) for name, run in runs if key in run.settings}
    return key.startswith("train.") and len(values) == len({name for name, _ in values}) > 1


def _split(
    runs: Sequence[Run], told: list[dict[str, str]], members: list[int], keys: Sequence[str]
) -> None:
    """Add to the facts of the members each setting that tells apart runs of the same facts."""
    for key in keys:
        cells: dict[Hashable, list[int]] = {}
        for i in members:
            cells.setdefault(tuple(told[i].items()), []).append(i)
        for cell in cells.values():
            values = [_value(runs[i], key) for i in cell]
            if len(set(values)) > 1:
                for i, value in zip(cell, values, strict=True):
                    told[i] = told[i] | {key: value}


def _value(run: Run, key: str) -> str:
    if key in NAMED:
        return run.choices[key]
    value = run.settings.get(key, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tell_the_rest(agents: Sequence[Agent], named: set[str]) -> None:
    """Say what differs between agents beside their labels: it would pass unseen otherwise."""
    kinds = dict.fromkeys(_kind(run) for one in agents for run in one.members if run.settings)
    for kind in kinds:
        # All runs of an agent on one kind of environment have the same settings.
        first = {
            one.label: next((r for r in one.members if r.settings and _kind(r) == kind), None)
            for one in agents
        }
        shown = [(one, run) for one in agents if (run := first[one.label])]
        for key in _agent_keys(run for _, run in shown):
            group, _, rest = key.partition(".")
            if group in named and (rest == "_target_" or group == "variant"):
                continue
            # What only one class of a choice has follows from the choice, save its parameters.
            having = [run for _, run in shown if group in _PARAMETERS or key in run.settings]
            if len({_value(run, key) for run in having}) < 2:
                continue
            for one, run in shown:
                value = _value(run, key)
                text = f"{key}={value}"
                if rest == "_target_":
                    text = f"{group}={value.rpartition('.')[2]}"
                if key in run.settings and key not in one.facts and text not in one.also:
                    one.also.append(text)
