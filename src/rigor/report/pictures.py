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

    line: what it shows. draw: returns it, from the directory (None without) and the values.
    takes: RUN_DIR, SWEEP, or [SWEEP] where it can do without; empty where it needs nothing.
    keys: of the values that it takes; `GROUP.` stands for `OPTION.PARAMETER=value` of every option
    of that config group. number: of the paper's figure.
    """

    line: str
    draw: Callable[[Path | None, Values], "Figure"]
    takes: str = ""
    keys: tuple[str, ...] = ()
    number: str = ""


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


def put_consistency(directory: Path | None, values: Values) -> "Figure":
    """Draw how agents learn the put, and what they would come to without learning."""
    from rigor.report.consistency import is_put
    from rigor.report.sweep_pictures import consistency

    assert directory is not None
    return consistency(directory, is_put, "american_put")


def lander_consistency(directory: Path | None, values: Values) -> "Figure":
    """Draw how agents learn the windy lunar lander."""
    from rigor.report.consistency import is_lander
    from rigor.report.sweep_pictures import consistency

    assert directory is not None
    return consistency(directory, is_lander, "windy_lunar_lander")


def preference_reversal(directory: Path | None, values: Values) -> "Figure":
    """Draw the exact probabilities of the two goals, and learned ones where runs are given."""
    from rigor.envs.wealth import SCALINGS
    from rigor.report.reversal import learned_rows, reversal_figure, solve
    from rigor.report.runs import find, load

    scaling = values.get("scaling", "volatility")
    if scaling not in SCALINGS:
        raise UserError(f"scaling={scaling}: choose {' or '.join(SCALINGS)}")
    learned = []
    if directory:
        learned = learned_rows([load(path) for path in find([directory])], scaling)
        if not learned:
            raise UserError(
                f"{directory}: holds no finished learned run of the paper's wealth problems with "
                f"risk=mean or risk=cvar and env.scaling={scaling}"
            )
    return reversal_figure(solve(scaling), learned, f"Two goals, {scaling} scaling")


def improvement(directory: Path | None, values: Values) -> "Figure":
    """Draw the improvement over a baseline, by default the time-inconsistent agent."""
    from rigor.report.sweep_pictures import improvement_bars

    assert directory is not None
    text = values.get("baseline", "variant=time_inconsistent")
    key, _, value = text.partition("=")
    if not key or not value:
        raise UserError(f"baseline={text}: must be KEY=VALUE, such as variant=time_aware")
    return improvement_bars(directory, (key, value))


def improvement_time_aware(directory: Path | None, values: Values) -> "Figure":
    """Draw the improvement over the time-aware agent."""
    return improvement(directory, {"baseline": "variant=time_aware"})


def atari_curves(directory: Path | None, values: Values) -> "Figure":
    """Draw the learning curves of all Atari games of a sweep."""
    from rigor.report import sweep_pictures

    assert directory is not None
    return sweep_pictures.atari_curves(directory)


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
    "put_consistency": Picture(
        "learning the put, and exact values", put_consistency, "SWEEP", number="1a"
    ),
    "lander_consistency": Picture(
        "learning the windy lunar lander", lander_consistency, "SWEEP", number="1b"
    ),
    "utilities": Picture("the utility f of every risk", utilities, keys=("risk.",), number="2"),
    "preference_reversal": Picture(
        "P of both goals of wealth, exact",
        preference_reversal,
        "[SWEEP]",
        keys=("scaling",),
        number="3ab",
    ),
    "improvement": Picture(
        "over a baseline, game by game", improvement, "SWEEP", keys=("baseline",), number="4"
    ),
    "discounts": Picture(
        "every d_t; paper: hyperbolic.k=0.01", discounts, keys=("steps", "discount."), number="5"
    ),
    "improvement_time_aware": Picture(
        "over the time-aware agent", improvement_time_aware, "SWEEP", number="6"
    ),
    "atari_curves": Picture("learning curves of all games", atari_curves, "SWEEP", number="7"),
    "policy": Picture("an exact agent's portfolios and goals", policy, "RUN_DIR"),
    "boundary": Picture("when an exact agent exercises the put", boundary, "RUN_DIR"),
    "outcomes": Picture("the law of an exact agent's return", outcomes, "RUN_DIR"),
}
