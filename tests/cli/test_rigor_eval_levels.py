"""`rigor-eval --risk-levels`."""

import csv
import json

import pytest
from evaluations import check_figure, command

import rigor
from rigor.cli import eval as rigor_eval


@pytest.mark.slow
def test_risk_levels_of_an_exact_agent_are_the_optima(trained, tmp_path, capsys):
    levels = "--risk-levels", "0.2,0.5,1"
    rigor_eval.run([str(trained("solved")), *levels, "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    place = next(tmp_path.glob("*/*/frontier.csv")).parent
    with (place / "frontier.csv").open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert [row["level"] for row in rows] == [0.2, 0.5, 1.0]
    assert all(row["objective"] == pytest.approx(row["optimum"]) for row in rows)
    assert rows[0]["objective"] < rows[1]["objective"] < rows[2]["objective"]
    own = json.loads((trained("solved") / "result.json").read_bytes())["objective"]
    assert rows[1]["objective"] == pytest.approx(own)
    assert "may have other means" in shown
    check_figure(place / "frontier.png")
    policy = rigor.load(trained("solved")).policy(tau=0.2)
    assert policy.initial_stock == pytest.approx(rows[0]["initial_stock"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "exact"), [("risky", False), ("learned_put", True)])
def test_risk_levels_of_a_learner(trained, tmp_path, capsys, name, exact):
    arguments = "--risk-levels", "0.5,1", "--episodes", "5", "--out", str(tmp_path)
    rigor_eval.run([str(trained(name)), *arguments])
    assert "95 % interval" in capsys.readouterr().out
    with next(tmp_path.glob("*/*/frontier.csv")).open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["episodes"]) for row in rows] == ([0, 0] if exact else [60, 30])
    for row in rows:
        low, high = (float(row[f"objective_{end}"]) for end in ("low", "high"))
        assert low <= float(row["objective"]) <= high
        assert not exact or float(row["objective"]) <= float(row["optimum"]) + 1e-9
    policy = rigor.load(trained(name)).policy(tau=0.5)
    assert policy.initial_stock == pytest.approx(float(rows[0]["initial_stock"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "levels", "part"),
    [
        ("cartpole", "0.1", "--risk-levels 0.1 with risk=mean: an agent serves other levels for"),
        ("risky", "2", "--risk-levels 2 with risk=cvar: risk.tau=2.0: the fraction"),
        ("risky", "0", "needs numbers above 0"),
        ("risky", "0.5 --video", "--video with --risk-levels"),
    ],
)
def test_levels_that_an_agent_does_not_serve_are_refused(trained, tmp_path, name, levels, part):
    done = command(trained(name), "--risk-levels", *levels.split(), cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert part in done.err
