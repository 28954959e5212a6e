import subprocess
import sys

import pytest
from synthetic import make_sweep, scored_agents

from rigor.cli import figure
from rigor.errors import UserError
from rigor.report.figures.catalogue import FIGURES, CatalogueEntry
from rigor.report.figures.style import new_figure


def command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "rigor.cli.figure", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def test_help_is_quick_and_lists_the_names():
    done = command("--help")
    assert done.returncode == 0
    assert figure.list_text() in done.stdout
    code = (
        "import sys; from rigor.cli.figure import run; run(['-h']); "
        "assert not {'matplotlib', 'hydra', 'numpy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_number_of_the_paper_names_its_figure():
    assert figure.parse(["2"])[0] == "utilities"
    assert figure.parse(["3ab"])[0] == "preference_reversal"


def test_the_list_has_every_figure_of_the_paper_on_a_line():
    rows = figure.run(["--list"]).splitlines()
    assert max(map(len, rows)) <= 80
    ours = rows[1 : rows.index("Other figures")]
    assert [row.split()[:3] for row in ours] == [
        ["1a", "put_consistency", "SWEEP"],
        ["1b", "lander_consistency", "SWEEP"],
        ["2", "utilities", "nothing"],
        ["3ab", "preference_reversal", "[SWEEP]"],
        ["4", "improvement", "SWEEP"],
        ["5", "discounts", "nothing"],
        ["6", "improvement_time_aware", "SWEEP"],
        ["7", "atari_curves", "SWEEP"],
    ]
    others = rows[rows.index("Other figures") + 1 :]
    assert [row.split()[0] for row in others] == ["policy", "boundary", "outcomes"]
    assert len(ours) + len(others) == len(FIGURES)


def test_the_command_writes_into_the_current_directory(tmp_path):
    done = command("discounts", "steps=20", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "discounts.png\ndiscounts.svg\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["discounts.png", "discounts.svg"]


def test_a_mistake_is_one_line_and_code_2():
    done = command("discount")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rigor-figure: discount: no such figure; did you mean discounts?\n"


def test_the_figure_of_a_run_is_written_into_its_directory(tmp_path, monkeypatch):
    calls = []

    def draw(directory, values):
        calls.append((directory, values))
        return new_figure(1.0, 1.0, "")

    monkeypatch.setitem(FIGURES, "policy", CatalogueEntry("", draw, "RUN_DIR"))
    run = str(tmp_path)
    assert figure.run(["policy", run]) == f"{run}/policy.png\n{run}/policy.svg"
    assert figure.run(["policy", run, f"out={run}/a"]) == f"{run}/a/policy.png\n{run}/a/policy.svg"
    assert (tmp_path / "a/policy.svg").is_file()
    assert calls == [(tmp_path, {}), (tmp_path, {})]


def test_a_figure_of_a_sweep_is_written_into_its_directory(tmp_path):
    scores = {("pong", "time_consistent"): [9.0], ("pong", "time_aware"): [6.0]}
    scored_agents(tmp_path, scores)
    sweep = make_sweep(tmp_path, [path for path in tmp_path.iterdir() if path.is_dir()])
    for name in ("improvement_time_aware", "atari_curves"):
        assert figure.run([name, str(sweep)]) == f"{sweep}/{name}.png\n{sweep}/{name}.svg"
        assert (sweep / f"{name}.svg").stat().st_size > 5000
    drawn = figure.run(["improvement", str(sweep), "baseline=variant=time_aware"])
    assert (sweep / "improvement.svg").read_text() == (
        sweep / "improvement_time_aware.svg"
    ).read_text()
    assert drawn.startswith(str(sweep))
    figure.run(["improvement", str(sweep)])  # every two agents
    with pytest.raises(UserError, match="baseline variant=time_inconsistent: no agent has it"):
        figure.run(["improvement", str(sweep), "baseline=variant=time_inconsistent"])
    with pytest.raises(UserError, match="no finished learned run of the paper's wealth problems"):
        figure.run(["preference_reversal", str(sweep)])  # before any exact solution is computed


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["no figure named; choose one of", "put_consistency, lander_consistency, utilities"]),
        (["polcy"], ["polcy: no such figure", "did you mean policy?"]),
        (["xyz"], ["xyz: no such figure; choose put_consistency,"]),
        (["policy"], ["policy: needs the directory of a run: rigor-figure policy RUN_DIR"]),
        (
            ["atari_curves"],
            ["atari_curves: needs the directory of a sweep: rigor-figure atari_curves SWEEP"],
        ),
        (["improvement", ".", "baseline=x"], ["baseline=x: must be KEY=VALUE"]),
        (["preference_reversal", "scaling=x"], ["scaling=x: choose volatility or covariance"]),
        (["atari_curves", "."], [".: neither a sweep's directory nor a run's"]),
        (["policy", "nowhere"], ["nowhere: no such directory"]),
        (["discounts", "."], [".: one word too many", "steps=..., DISCOUNT.KEY=..., out=..."]),
        (["discounts", "--steps=3"], ["--steps=3: no such flag"]),
        (["discounts", "step=3"], ["step: discounts has no such key", "steps=..."]),
        (["utilities", "steps=3"], ["steps: utilities has no such key"]),
        (["discounts", "steps=0"], ["steps=0: must be a whole number of agent steps, 1 to 100000"]),
        (["discounts", "steps=1.5"], ["steps=1.5: must be"]),
        (["discounts", "out="], ["out=: needs a directory"]),
        (["discounts", "hyperbolc.k=1"], ["hyperbolc.k: no such discount", "hyperbolic"]),
        (
            ["discounts", "hyperbolic.kk=1"],
            ["hyperbolic.kk: no such key; did you mean hyperbolic.k?"],
        ),
        (["discounts", "hyperbolic.k=-1"], ["hyperbolic.k=-1.0: must be"]),
        (["discounts", "hyperbolic.k=abc"], ["hyperbolic.k=abc"]),
        (["utilities", "cvar.tau=0"], ["cvar.tau=0.0"]),
    ],
)
def test_refusals(arguments, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        figure.run(arguments)
    for part in parts:
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"config\.yaml: not a readable config"):
        figure.run(["outcomes", str(tmp_path)])
