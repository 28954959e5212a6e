"""Agents of a report: groups of runs that differ in environment and seed only.

An agent's label names the choices and settings that distinguish it from the other agents:
`time_consistent`, `time_aware quadrature=lower`.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rigor.errors import UserError
from rigor.report.data.labels import setting_value, short_keys
from rigor.report.data.runs import NAMED, RunRecord
from rigor.report.data.text import value_text

BASELINES = (
    ("variant", "time_inconsistent"),
    ("variant", "time_aware"),
    ("horizons.quadrature", "lower"),
)
"""The baselines of the paper's figures 4 and 6, and its quadrature."""

_GROUPS = ("variant", "agent", "discount", "risk")  # in the order of a label
_PARAMETERS = ("discount", "horizons", "risk")
_ORDER = ("time_consistent", "time_aware", "time_inconsistent")  # of variants; others come last


@dataclass
class AgentGroup:
    """The runs of one agent, by environment.

    label: distinguishes it from the other agents. facts: the choices and settings behind the label.
    other_differences: settings that differ between agents and are not in the label, `key=value`.
    runs: by the label of the environment, ordered by seed.
    """

    label: str
    facts: dict[str, str]
    other_differences: list[str] = field(default_factory=list)
    runs: dict[str, list[RunRecord]] = field(default_factory=dict)

    def matches(self, key: str, value: str) -> bool:
        """Tell whether a choice or a setting has this value in all runs."""
        names = [_whole_key(run, key) for run in self.members]
        return all(
            value in (_value(run, name), _shown(run, name))
            or _shown(run, name) == value_text(value)
            for run, name in zip(self.members, names, strict=True)
        )

    @property
    def is_exact(self) -> bool:
        """Whether all runs computed their policy from a model and learned nothing."""
        return all(run.is_exact for run in self.members)

    @property
    def members(self) -> list[RunRecord]:
        """All runs."""
        return [run for group in self.runs.values() for run in group]


class RunGroup(NamedTuple):
    """The runs of one agent on one environment, which is given by its label."""

    agent: AgentGroup
    environment: str
    runs: list[RunRecord]


def agents_of(runs: Sequence[RunRecord]) -> list[AgentGroup]:
    """Group runs into agents, ordered by variant and label."""
    differing = [group for group in _GROUPS if len({run.choices[group] for run in runs}) > 1]
    facts = [{group: run.choices[group] for group in differing} for run in runs]
    # Kinds of environments have different defaults; such a difference makes no other agent.
    kinds, environments = [_kind(run) for run in runs], environment_labels(runs)
    for kind in dict.fromkeys(kinds):
        members = [i for i, other in enumerate(kinds) if other == kind and runs[i].settings]
        labelled = [(environments[i], runs[i]) for i in members]
        keys = _agent_keys(run for _, run in labelled)
        _split(runs, facts, members, [key for key in keys if not _follows(key, labelled)])
    if not differing:
        common = {group: runs[0].choices[group] for group in _GROUPS if runs[0].choices[group]}
        facts = [own or common for own in facts]
    agents: dict[str, AgentGroup] = {}
    labels = _labels(facts)
    for run, own, environment, label in zip(runs, facts, environments, labels, strict=True):
        agent = agents.setdefault(label, AgentGroup(label, own))
        agent.runs.setdefault(environment, []).append(run)
    for agent in agents.values():
        for members_here in agent.runs.values():
            members_here.sort(key=lambda run: (run.seed is None, run.seed or 0))
    ordered = sorted(agents.values(), key=_place)
    _add_other_differences(ordered, set(differing))
    return ordered


def environment_labels(runs: Sequence[RunRecord]) -> list[str]:
    """Return the environment's label of each run: its name and differing settings."""
    facts = [{"env": run.choices["env"]} for run in runs]
    for name in {run.choices["env"] for run in runs}:
        members = [i for i, run in enumerate(runs) if run.choices["env"] == name and run.settings]
        keys = {key for i in members for key in runs[i].settings if key.startswith("env.")}
        _split(runs, facts, members, sorted(keys))
    return [
        " ".join(
            v if k == "env" else f"{k.removeprefix('env.')}={value_text(v)}" for k, v in own.items()
        )
        for own in facts
    ]


def baseline_of(
    agent: AgentGroup, agents: Sequence[AgentGroup], key: str, value: str
) -> AgentGroup | None:
    """Return the agent with key=value that shares most facts with a given agent.

    None if the given agent itself has key=value, if no agent has, or if several share as many.
    """
    candidates = [other for other in agents if other.runs and other.matches(key, value)]
    if agent in candidates or not candidates:
        return None
    shared = [len(other.facts.items() & agent.facts.items()) for other in candidates]
    if shared.count(max(shared)) > 1:
        return None
    return candidates[shared.index(max(shared))]


def refuse_no_baseline(agents: Sequence[AgentGroup], key: str, value: str) -> None:
    """Raise a `UserError` that names the existing values if no agent has key=value."""
    if any(agent.matches(key, value) for agent in agents):
        return
    values = {_shown(run, _whole_key(run, key)) for agent in agents for run in agent.members}
    existing = sorted(values - {""})
    way_out = f"choose {' or '.join(existing)}" if existing else f"no run has a setting {key}"
    raise UserError(f"baseline {key}={value}: no agent has it; {way_out}")


def _labels(facts: Sequence[dict[str, str]]) -> list[str]:
    """Return the short label of each agent's facts; equal labels of different facts are long."""
    names = short_keys(dict.fromkeys(key for own in facts for key in own))
    short = [
        " ".join(v if k in _GROUPS else f"{names[k]}={setting_value(k, v)}" for k, v in own.items())
        for own in facts
    ]
    meanings: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for label, own in zip(short, facts, strict=True):
        meanings.setdefault(label, set()).add(tuple(own.items()))
    return [
        label if len(meanings[label]) == 1 else " ".join(f"{k}={v}" for k, v in own.items())
        for label, own in zip(short, facts, strict=True)
    ]


def _place(agent: AgentGroup) -> tuple[Any, ...]:
    """Return the place of an agent: by variant, then by the values of its facts, numbers first."""
    variant = agent.facts.get("variant", "")
    order = _ORDER.index(variant) if variant in _ORDER else len(_ORDER)
    return order, [_sortable(value) for value in agent.facts.values()], agent.label


def _sortable(value: str) -> tuple[bool, float, str]:
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _kind(run: RunRecord) -> tuple[str, str]:
    target = str(run.settings.get("env._target_", ""))
    return target, str(run.settings.get("env.id", ""))


def _agent_keys(runs: Iterable[RunRecord]) -> list[str]:
    keys = {key for run in runs for key in run.settings}
    return sorted(key for key in keys if key != "seed" and not key.startswith("env."))


def _follows(key: str, runs: Sequence[tuple[str, RunRecord]]) -> bool:
    """Tell whether a setting of `train` is a function of the environment.

    For example, a longer problem gets more steps. Such a setting makes no other agent.

    Args:
      runs: pairs of an environment's label and a run.
    """
    values = {(name, _value(run, key)) for name, run in runs if key in run.settings}
    return key.startswith("train.") and len(values) == len({name for name, _ in values}) > 1


def _split(
    runs: Sequence[RunRecord], facts: list[dict[str, str]], members: list[int], keys: Sequence[str]
) -> None:
    """Add each setting that differs between members of equal facts to their facts."""
    for key in keys:
        cells: dict[Hashable, list[int]] = {}
        for i in members:
            cells.setdefault(tuple(facts[i].items()), []).append(i)
        for cell in cells.values():
            values = [_value(runs[i], key) for i in cell]
            if len(set(values)) > 1:
                for i, value in zip(cell, values, strict=True):
                    facts[i] = facts[i] | {key: value}


def _whole_key(run: RunRecord, key: str) -> str:
    """Return the dotted key of a key that may be short, as in a label: `learning_rate`."""
    if key in NAMED or key in run.settings:
        return key
    if f"{key}._target_" in run.settings:
        return f"{key}._target_"
    ends = [name for name in run.settings if name.endswith(f".{key}")]
    return ends[0] if len(ends) == 1 else key


def _shown(run: RunRecord, key: str) -> str:
    """Return the text of a setting's value in a label."""
    return setting_value(key, _value(run, key))


def _value(run: RunRecord, key: str) -> str:
    if key in NAMED:
        return run.choices[key]
    value = run.settings.get(key, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _add_other_differences(agents: Sequence[AgentGroup], named: set[str]) -> None:
    """Add the settings that differ between agents and that no label shows.

    Args:
      named: the config groups whose choice is in the labels.
    """
    kinds = dict.fromkeys(_kind(run) for agent in agents for run in agent.members if run.settings)
    for kind in kinds:
        # All runs of an agent on one kind of environment have the same settings.
        first = {
            agent.label: next((r for r in agent.members if r.settings and _kind(r) == kind), None)
            for agent in agents
        }
        shown = [(agent, run) for agent in agents if (run := first[agent.label])]
        for key in _agent_keys(run for _, run in shown):
            group, _, rest = key.partition(".")
            if group in named and (rest == "_target_" or group == "variant"):
                continue
            # A setting that only some options of a group have follows from the choice of the
            # option, unless it is a parameter of the discount, the horizons or the risk.
            having = [run for _, run in shown if group in _PARAMETERS or key in run.settings]
            if len({_value(run, key) for run in having}) < 2:
                continue
            for agent, run in shown:
                value = _value(run, key)
                name = group if rest == "_target_" else key
                text = f"{name}={setting_value(key, value)}"
                is_new = key not in agent.facts and text not in agent.other_differences
                if key in run.settings and is_new:
                    agent.other_differences.append(text)
