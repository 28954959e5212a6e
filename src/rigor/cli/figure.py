"""`rigor-figure`: draw a figure as PNG and SVG, and print the two paths.

Exit codes: 0 done, 2 a mistake of the user.
"""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from rigor.cli import command
from rigor.errors import UserError
from rigor.report.figures.catalogue import FIGURES, CatalogueEntry, Values
from rigor.report.figures.config_options import option_names
from rigor.report.figures.style import save

HELP = """\
rigor-figure: draw a figure as NAME.png and NAME.svg.

  rigor-figure NAME [DIR] [key=value ...] [out=DIR]    NAME or its number in the paper
  rigor-figure --list    the list of figures

{names}

SWEEP is the directory of a sweep (OUT/sweeps/NAME), a directory of runs (out=DIR) or one run. A
figure of a directory is written into it, other figures into the working directory; out=DIR names
another directory.

Examples
  rigor-figure discounts steps=200 hyperbolic.k=0.01
  rigor-figure utilities cvar.tau=0.25 out=figures
  rigor-figure improvement runs/sweeps/NAME baseline=horizons.quadrature=lower
  rigor-figure preference_reversal runs scaling=covariance
"""

KEY_VALUE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-figure", lambda arguments: print(run(arguments)), out="out=DIR")


def run(arguments: Sequence[str]) -> str:
    """Draw the figure that the command line names, and return the text to print.

    Raises:
      UserError: a name, a key, a value or a directory is wrong.
    """
    if {"-h", "--help"} & set(arguments):
        return help_text()
    if list(arguments) == ["--list"]:
        return list_text()
    name, entry, directory, values = parse(arguments)
    out = values.pop("out", None)
    figure = entry.draw(directory, values)
    paths = save(figure, Path(out).expanduser() if out else directory or Path(), name)
    return "\n".join(map(str, paths))


def help_text() -> str:
    """Return the text of --help."""
    return HELP.format(names=list_text()).rstrip()


def list_text() -> str:
    """Return one line for each figure: number in the paper, name, directory, description."""
    lines = ["The paper's figures", *(_line(name) for name, p in FIGURES.items() if p.number)]
    lines += ["Other figures", *(_line(name) for name, p in FIGURES.items() if not p.number)]
    return "\n".join(lines)


def _line(name: str) -> str:
    entry = FIGURES[name]
    return f"  {entry.number:<4}{name:<24}{entry.takes or 'nothing':<9}{entry.description}"


def parse(arguments: Sequence[str]) -> tuple[str, CatalogueEntry, Path | None, dict[str, str]]:
    """Return the name, its entry in the catalogue, the directory (or None) and the values.

    Raises:
      UserError: one of them is wrong.
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
        raise UserError(f"no figure named; choose one of {', '.join(FIGURES)}")
    name, *rest = words
    name = next((key for key, entry in FIGURES.items() if entry.number == name), name)
    if name not in FIGURES:
        raise UserError(f"{name}: no such figure; {_nearest(name, list(FIGURES))}")
    entry = FIGURES[name]
    if len(rest) > bool(entry.takes):
        raise UserError(f"{rest[-1]}: one word too many; {name} takes {_takes(entry)}")
    if not rest and entry.takes in ("RUN_DIR", "SWEEP"):
        which = "run" if entry.takes == "RUN_DIR" else "sweep"
        raise UserError(
            f"{name}: needs the directory of a {which}: rigor-figure {name} {entry.takes}"
        )
    directory = Path(rest[0]).expanduser() if rest else None
    if directory and not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    _refuse_keys(name, entry, values)
    return name, entry, directory, values


def _refuse_keys(name: str, entry: CatalogueEntry, values: Values) -> None:
    if values.get("out") == "":
        raise UserError("out=: needs a directory")
    for key in values:
        option = key.partition(".")[0]
        known = [*entry.keys, "out"]
        groups = [known_key.rstrip(".") for known_key in known if known_key.endswith(".")]
        choices = [name for group in groups for name in option_names(group)] if "." in key else []
        if key in known or option in choices:
            continue
        if choices:
            raise UserError(f"{key}: no such {groups[0]}; {_nearest(option, choices)}")
        raise UserError(f"{key}: {name} has no such key; it takes {_takes(entry)}")


def _takes(entry: CatalogueEntry) -> str:
    keys = [f"{key.upper()}KEY=..." if key.endswith(".") else f"{key}=..." for key in entry.keys]
    return ", ".join([*([entry.takes] if entry.takes else []), *keys, "out=..."])


def _nearest(word: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {' or '.join(nearest)}?" if nearest else f"choose {', '.join(known)}"


if __name__ == "__main__":
    main()
