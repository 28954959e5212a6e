"""`rigor-figure`: draw one picture as PNG and SVG, and print the two paths.

Exit codes: 0 done, 2 the user's mistake.
"""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from rigor import command
from rigor.errors import UserError
from rigor.report.pictures import PICTURES, Picture, Values, options
from rigor.report.style import save

HELP = """\
rigor-figure: draw one picture as NAME.png and NAME.svg.

  rigor-figure NAME [DIR] [key=value ...] [out=DIR]
  rigor-figure --list    the pictures alone

{names}

SWEEP is the directory of a sweep (out/sweeps/NAME), of runs (out=DIR) or one run. A picture of a
directory goes into it, any other into the current one; out=DIR chooses another place.

Examples
  rigor-figure discounts steps=200 hyperbolic.k=0.01
  rigor-figure utilities cvar.tau=0.25 out=pictures
  rigor-figure improvement runs/sweeps/NAME baseline=horizons.quadrature=lower
  rigor-figure preference_reversal runs scaling=covariance
"""

KEY_VALUE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-figure", lambda arguments: print(run(arguments)))


def run(arguments: Sequence[str]) -> str:
    """Do what the command line asks, and return what is to be printed.

    Raises:
      UserError: a name, a key, a value or a directory that does not fit.
    """
    if {"-h", "--help"} & set(arguments):
        return help_text()
    if list(arguments) == ["--list"]:
        return list_text()
    name, picture, directory, values = read(arguments)
    out = values.pop("out", None)
    figure = picture.draw(directory, values)
    paths = save(figure, Path(out).expanduser() if out else directory or Path(), name)
    return "\n".join(map(str, paths))


def help_text() -> str:
    """Return how the command is used."""
    return HELP.format(names=list_text()).rstrip()


def list_text() -> str:
    """Return the pictures, a line each: number in the paper, name, what it needs and shows."""
    lines = ["The paper's figures", *(_line(name) for name, p in PICTURES.items() if p.number)]
    lines += ["Other pictures", *(_line(name) for name, p in PICTURES.items() if not p.number)]
    return "\n".join(lines)


def _line(name: str) -> str:
    one = PICTURES[name]
    return f"  {one.number:<4}{name:<24}{one.takes or 'nothing':<9}{one.line}"


def read(arguments: Sequence[str]) -> tuple[str, Picture, Path | None, dict[str, str]]:
    """Return the name, its picture, the directory if there is one, and the values.

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
    if len(rest) > bool(picture.takes):
        raise UserError(f"{rest[-1]}: one word too many; {name} takes {_takes(picture)}")
    if not rest and picture.takes in ("RUN_DIR", "SWEEP"):
        which = "run" if picture.takes == "RUN_DIR" else "sweep"
        raise UserError(f"{name}: of which {which}? rigor-figure {name} {picture.takes}")
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
        choices = [one for group in groups for one in options(group)] if "." in key else []
        if key in known or option in choices:
            continue
        if choices:
            raise UserError(f"{key}: no such {groups[0]}; {_nearest(option, choices)}")
        raise UserError(f"{key}: {name} has no such key; it takes {_takes(picture)}")


def _takes(picture: Picture) -> str:
    keys = [f"{key.upper()}KEY=..." if key.endswith(".") else f"{key}=..." for key in picture.keys]
    return ", ".join([*([picture.takes] if picture.takes else []), *keys, "out=..."])


def _nearest(word: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {' or '.join(nearest)}?" if nearest else f"choose {', '.join(known)}"


if __name__ == "__main__":
    main()
