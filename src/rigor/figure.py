"""`rigor-figure`: draw one picture as PNG and SVG, and print the two paths.

Exit codes: 0 done, 2 the user's mistake.
"""

import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rigor.errors import UserError
from rigor.report.pictures import PICTURES, Picture, Values, options
from rigor.report.style import save

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

KEY_VALUE = re.compile(r"([A-Za-z_][\w.]*)=(.*)", re.DOTALL)


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
        choices = [one for group in groups for one in options(group)] if "." in key else []
        if key in known or option in choices:
            continue
        if choices:
            raise UserError(f"{key}: no such {groups[0]}; {_nearest(option, choices)}")
        raise UserError(f"{key}: {name} has no such key; it takes {_takes(picture)}")


def _takes(picture: Picture) -> str:
    keys = [f"{key.upper()}KEY=..." if key.endswith(".") else f"{key}=..." for key in picture.keys]
    return ", ".join([*(["RUN_DIR"] if picture.of_run else []), *keys, "out=..."])


def _nearest(word: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {' or '.join(nearest)}?" if nearest else f"choose {', '.join(known)}"


if __name__ == "__main__":
    main()
