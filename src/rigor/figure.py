"""`rigor-figure`: draw one picture as PNG and SVG, and print the two paths.

Exit codes: 0 done, 2 the user's mistake.
"""

import difflib
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.errors import UserError

# hydra, numpy and matplotlib are imported where they are used: `--help` must be quick
if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rigor.load import Run

HELP = """\
rigor-figure: draw one picture as NAME.png and NAME.svg.

  rigor-figure NAME [RUN_DIR] [key=value ...] [out=DIR]

Names
{names}

A picture of a run goes into the run's directory, any other into the current one; out=DIR chooses
another place.

Examples
  rigor-figure discounts steps=200 hyperbolic.k=0.01
  rigor-figure utilities cvar.tau=0.25 out=pictures
  rigor-figure policy RUN_DIR
"""

PAPER = ("cir", "exponential", "hyperbolic", "mean")  # drawn first: blue, orange, green there
MOST_STEPS = 100_000
KEY_VALUE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
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


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        said = run(sys.argv[1:])
    except UserError as error:
        print(f"rigor-figure: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    print(said)


def run(arguments: Sequence[str]) -> str:
    """Do what the command line asks, and return what is to be printed.

    Raises:
      UserError: a name, a key, a value or a directory that does not fit.
    """
    if {"-h", "--help"} & set(arguments):
        return help_text()
    name, picture, directory, values = read(arguments)
    out = values.pop("out", None)
    figure = picture.draw(directory, values)
    from rigor.report.exact_figures import save

    paths = save(figure, Path(out).expanduser() if out else directory or Path(), name)
    return "\n".join(map(str, paths))


def help_text() -> str:
    """Return the names, a line each."""
    heads = {name: f"{name} RUN_DIR" if p.of_run else name for name, p in PICTURES.items()}
    return HELP.format(
        names="\n".join(f"  {heads[name]:<18}{p.line}" for name, p in PICTURES.items())
    ).rstrip()


def read(arguments: Sequence[str]) -> tuple[str, Picture, Path | None, dict[str, str]]:
    """Return the name, its picture, the run directory if it needs one, and the values.

    Raises:
      UserError: any of them does not fit.
    """
    values: dict[str, str] = {}
    words: list[str] = []
    for argument in arguments:
        if argument.startswith("-"):
            raise UserError(f"{argument}: no such flag; see rigor-figure --help")
        if found := KEY_VALUE.fullmatch(argument):
            values[found[1]] = found[2]
        else:
            words.append(argument)
    if not words:
        raise UserError(f"which picture? choose one of {', '.join(PICTURES)}")
    name, *rest = words
    if name not in PICTURES:
        raise UserError(f"{name}: no such picture; {_nearest(name, list(PICTURES))}")
    picture = PICTURES[name]
    if len(rest) > picture.of_run:
        raise UserError(f"{rest[-1]}: one word too many; {name} takes {_takes(picture)}")
    if len(rest) < picture.of_run:
        raise UserError(f"{name}: of which run? rigor-figure {name} RUN_DIR")
    directory = Path(rest[0]).expanduser() if rest else None
    if directory and not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    _refuse_keys(name, picture, values)
    return name, picture, directory, values


def _refuse_keys(name: str, picture: Picture, values: Values) -> None:
    if values.get("out") == "":
        raise UserError("out=: needs a directory")
    for key in values:
        option = key.partition(".")[0]
        known = [*picture.keys, "out"]
        groups = [one.rstrip(".") for one in known if one.endswith(".")]
        if key in known or ("." in key and any(option in _options(group) for group in groups)):
            continue
        if "." in key and groups:
            options = [one for group in groups for one in _options(group)]
            raise UserError(f"{key}: no such {groups[0]}; {_nearest(option, options)}")
        raise UserError(f"{key}: {name} has no such key; it takes {_takes(picture)}")


def _takes(picture: Picture) -> str:
    keys = [f"{key.upper()}KEY=..." if key.endswith(".") else f"{key}=..." for key in picture.keys]
    return ", ".join([*(["RUN_DIR"] if picture.of_run else []), *keys, "out=..."])


def _nearest(word: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {' or '.join(nearest)}?" if nearest else f"choose {', '.join(known)}"


# --- pictures of what can be chosen


def discounts(directory: Path | None, values: Values) -> "Figure":
    """Draw every discount of the config group, by its defaults and the values."""
    from rigor.report.exact_figures import discount_curves

    text = values.get("steps", "100")
    if not re.fullmatch(r"\d{1,6}", text) or not 1 <= int(text) <= MOST_STEPS:
        raise UserError(f"steps={text}: must be a whole number of agent steps, 1 to {MOST_STEPS}")
    return discount_curves(_choices("discount", values), int(text))


def utilities(directory: Path | None, values: Values) -> "Figure":
    """Draw the utility of every risk measure of the config group."""
    from rigor.report.exact_figures import utility_curves

    return utility_curves(_choices("risk", values))


def _options(group: str) -> list[str]:
    """Return the options of a config group, those of the paper's figure first."""
    from importlib import resources

    names = [node.name for node in (resources.files("rigor.conf") / group).iterdir()]
    options = [name.removesuffix(".yaml") for name in names if name.endswith(".yaml")]
    return sorted(options, key=lambda name: (name not in PAPER, name))


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
        for option in _options(group):
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


# --- pictures of a run of an exact agent


def policy(directory: Path | None, values: Values) -> "Figure":
    """Draw the portfolios and goals of a run on `env=gbwm`."""
    from rigor.envs.wealth import Wealth
    from rigor.report.exact_figures import policy_map

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
    from rigor.report.exact_figures import boundary_curve

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
    from zipfile import BadZipFile

    import numpy as np

    from rigor.envs.option import Put
    from rigor.envs.wealth import Wealth
    from rigor.report.exact_figures import outcome_law

    one, env = _run(directory, "outcomes.npz", object, "outcomes", "")
    path = one.path / "outcomes.npz"
    try:
        with np.load(path) as file:
            returns, probabilities = file["returns"], file["probabilities"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise UserError(f"{path}: not the outcomes of a run ({error})") from error
    risk = one.built().risk
    objective = float(risk.oce(returns, probabilities)[0])
    marks = {"mean": float(probabilities @ returns), "objective": objective}
    stock = (one.result or {}).get("initial_stock_optimal")
    if risk.needs_stock and isinstance(stock, int | float) and math.isfinite(stock):
        marks["−c₀*"] = -float(stock)
    unit = "utility" if isinstance(env, Wealth) else "currency" if isinstance(env, Put) else ""
    return outcome_law(
        returns, probabilities, marks, unit or "reward", f"Outcomes of {_title(one)}"
    )


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


if __name__ == "__main__":
    main()
