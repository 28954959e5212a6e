"""The pictures that `rigor-figure` draws, from the config groups or from a run directory."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.errors import UserError

# hydra, numpy and matplotlib are imported where they are used: `--help` must be quick
if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rigor.load import Run

PAPER = ("cir", "exponential", "hyperbolic", "mean")  # drawn first: blue, orange, green there
MOST_STEPS = 100_000
SIGNS = {
    "beta": "β",
    "gamma": "γ",
    "gamma_tail": "tail γ",
    "kappa": "κ",
    "sigma": "σ",
    "tau": "τ",
    "r0": "r₀",
}

Values = Mapping[str, str]


@dataclass
class Picture:
    """What can be drawn.

    line: what it shows. draw: returns it, from the run directory (None without) and the values.
    of_run: whether it is of a run. keys: of the values that it takes; `GROUP.` stands for
    `OPTION.PARAMETER=value` of every option of that config group.
    """

    line: str
    draw: Callable[[Path | None, Values], "Figure"]
    of_run: bool = False
    keys: tuple[str, ...] = ()


def options(group: str) -> list[str]:
    """Return the options of a config group, those of the paper's figure first."""
    from importlib import resources

    names = [node.name for node in (resources.files("rigor.conf") / group).iterdir()]
    found = [name.removesuffix(".yaml") for name in names if name.endswith(".yaml")]
    return sorted(found, key=lambda name: (name not in PAPER, name))


def discounts(directory: Path | None, values: Values) -> "Figure":
    """Draw every discount of the config group, by its defaults and the values."""
    from rigor.report.functions import discount_curves

    text = values.get("steps", "100")
    if not re.fullmatch(r"\d{1,6}", text) or not 1 <= int(text) <= MOST_STEPS:
        raise UserError(f"steps={text}: must be a whole number of agent steps, 1 to {MOST_STEPS}")
    return discount_curves(_choices("discount", values), int(text))


def utilities(directory: Path | None, values: Values) -> "Figure":
    """Draw the utility of every risk measure of the config group."""
    from rigor.report.functions import utility_curves

    return utility_curves(_choices("risk", values))


def policy(directory: Path | None, values: Values) -> "Figure":
    """Draw the portfolios and goals of a run on `env=gbwm`."""
    from rigor.envs.wealth import Wealth
    from rigor.report.solutions import policy_map

    one, env = _run(directory, "policy.npz", Wealth, "policy", "env=gbwm")
    tabled: Any = one.policy()
    costs = {env.early_time: env.early_cost, env.periods: env.late_cost}
    everything = [env.wealth, *costs.values()]
    return policy_map(
        tabled.model.observations(0)[:, 0].astype(float),
        tabled.tables.actions,
        tabled.tables.offsets,
        len(env.weights),
        costs,
        env.wealth,
        # where an episode spends its time; the model's grid ends where chances are 1e-9
        (min(everything) / 3, 1.5 * max(env.wealth, sum(costs.values()))),
        f"Portfolios and goals of {_title(one)}",
    )


def boundary(directory: Path | None, values: Values) -> "Figure":
    """Draw when a run on `env=american_put` exercises."""
    from rigor.envs.option import Put
    from rigor.report.solutions import boundary_curve

    one, env = _run(directory, "policy.npz", Put, "boundary", "env=american_put")
    tabled: Any = one.policy()
    return boundary_curve(
        tabled.model.observations(0)[:, 0].astype(float),
        tabled.tables.actions,
        env.strike,
        env.start,
        env.maturity / env.steps,
        f"Exercise boundary of {_title(one)}",
    )


def outcomes(directory: Path | None, values: Values) -> "Figure":
    """Draw the law of a run's discounted return, with its mean, its objective and −c₀*."""
    from rigor.envs.option import Put
    from rigor.envs.wealth import Wealth
    from rigor.report.outcomes import outcome_law, read_outcomes

    one, env = _run(directory, "outcomes.npz", object, "outcomes", "")
    returns, probabilities = read_outcomes(one.path / "outcomes.npz")
    risk = one.built().risk
    objective = float(risk.oce(returns, probabilities)[0])
    marks = {"mean": float(probabilities @ returns), "objective": objective}
    stock = (one.result or {}).get("initial_stock_optimal")
    if risk.needs_stock and isinstance(stock, int | float) and math.isfinite(stock):
        marks["−c₀*"] = -float(stock)
    unit = "reward"
    if isinstance(env, Wealth | Put):
        unit = "utility" if isinstance(env, Wealth) else "currency"
    return outcome_law(returns, probabilities, marks, unit, f"Outcomes of {_title(one)}")


def _choices(group: str, values: Values) -> dict[str, Any]:
    """Return the working object of every option of a group, by a name that says its parameters."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException, InstantiationException
    from hydra.utils import instantiate

    from rigor import config
    from rigor.launch import hints

    config.register()
    found = {}
    with initialize_config_module("rigor.conf", version_base="1.3"):
        for option in options(group):
            own = {key: value for key, value in values.items() if key.startswith(f"{option}.")}
            typed = [f"{group}{key.removeprefix(option)}={value}" for key, value in own.items()]
            try:
                choice = instantiate(compose(f"{group}/{option}", typed)[group], _convert_="all")
            except HydraException as error:
                if isinstance(error, InstantiationException) and error.__cause__:
                    line = str(error.__cause__)
                else:
                    line = hints.line(error)
                raise UserError(line.replace(f"{group}.", f"{option}.")) from error
            found[_described(option, choice)] = choice
    return found


def _described(name: str, choice: object) -> str:
    """Return such as `generalized_hyperbolic (k = 0.05, b = 1.5)`."""
    parts = []
    for key, value in vars(choice).items():
        if isinstance(value, int | float):
            parts.append(f"{SIGNS.get(key, key)} = {value:g}".replace("-", "−"))
        else:  # the discount that is capped
            inner = ", ".join(f"{SIGNS.get(k, k)} = {v:g}" for k, v in vars(value).items())
            parts.append(f"{type(value).__name__.lower()} {inner}")
    return f"{name} ({', '.join(parts)})" if parts else name


def _run(
    directory: Path | None, file: str, kind: type, name: str, choice: str
) -> tuple["Run", Any]:
    """Return a run and its environment.

    Raises:
      UserError: the directory is no run, or of another environment or agent than the picture's.
    """
    import rigor

    assert directory is not None
    one = rigor.load(directory)
    env = one.built().env
    if not isinstance(env, kind):
        raise UserError(
            f"{directory}: has no picture {name}, for its environment is {type(env).__name__}; "
            f"{name} needs a run with {choice}"
        )
    if not (directory / file).is_file():
        raise UserError(
            f"{directory}: has no picture {name}, for there is no {file}; "
            f"it takes a finished run of an exact agent"
        )
    return one, env


def _title(one: "Run") -> str:
    return one.path.resolve().name


PICTURES = {
    "discounts": Picture(
        "every discount d_t and its one-step factor; steps=100, OPTION.KEY=value",
        discounts,
        keys=("steps", "discount."),
    ),
    "utilities": Picture(
        "the utility f of every risk measure; OPTION.KEY=value", utilities, keys=("risk.",)
    ),
    "policy": Picture(
        "portfolios and goals by wealth and t: an exact agent's, env=gbwm", policy, of_run=True
    ),
    "boundary": Picture(
        "when the put is exercised: an exact agent's, env=american_put", boundary, of_run=True
    ),
    "outcomes": Picture(
        "the law of the discounted return: an exact agent's", outcomes, of_run=True
    ),
}
