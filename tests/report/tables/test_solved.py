import pytest
from synthetic import PAPER_WEALTH, config_of, make_run

from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.tables.solved import solved_sheets


@pytest.fixture
def sheets(tmp_path):
    def sheets(game, env, results):
        runs = []
        for seed, result in enumerate(results):
            config = config_of(game, "time_consistent", seed) | {"env": env}
            how = {"config": config, "result": result}
            runs.append(load(make_run(tmp_path, game, "time_consistent", seed, 1.0, **how)))
        return solved_sheets(agents_of(runs))

    return sheets


def test_wealth_with_the_optimum_and_the_paper(sheets):
    result = {"objective_optimal": 800.0, "expected_utility": 1700.0, "p_early": 0.4, "p_late": 0.6}
    result |= {"p_early_affordable": 0.7, "objective": 1.0}
    results = [{**result, "objective_exact": value} for value in (700.0, 740.0)]
    wealth, put, gaps, others = sheets("gbwm", PAPER_WEALTH, results)
    assert not put
    assert not gaps
    assert not others
    (cells,) = wealth.cells
    row = dict(zip(wealth.headings, cells, strict=True))
    assert row["objective"] == "720 [466, 974]"
    assert (row["optimum"], row["fraction of optimum"], row["n"]) == ("800", "90 %", "2")
    assert (row["discount"], row["risk"]) == ("hyperbolic k=0.05", "mean")
    # the paper's row of T = 30, u = 2000, k = .05: 4/7 of 1000 x .438 and .4 of 2000 x .587
    assert row["paper: objective"] == "720"
    assert [row[name] for name in ("problem", "T", "u_T")] == ["gbwm", "30", "2,000"]
    assert row["scaling"] == "covariance"
    numbers = ("E[U]", "P(affordable)", "P1", "P2")
    assert [row[name] for name in numbers] == ["1700", "0.7", "0.4", "0.6"]
    assert [row[f"paper: {name}"] for name in numbers] == ["1612", "0.735", "0.438", "0.587"]
    assert row["note"] == ""


def test_the_papers_rows_at_30_periods_have_covariance_scaling(sheets):
    result = {"objective": 700.0, "objective_optimal": 800.0}
    wealth, *_ = sheets("gbwm", PAPER_WEALTH | {"scaling": "volatility"}, [result])
    assert wealth.rows[0]["note"] == "paper: covariance scaling"
    assert wealth.rows[0]["objective"] == 700.0  # without an exact value, the sampled value
    assert "expected_utility" not in wealth.rows[0]


def test_the_put_and_other_problems(sheets):
    result = {"objective": 4.0, "objective_optimal": 5.0, "score_exact": 6.5, "regret": 1.0}
    env = {"steps": 20, "_target_": "rigor.envs.american_put.AmericanPut"}
    _, put, *_ = sheets("american_put", env, [result])
    assert (put.rows[0]["percent"], put.rows[0]["score_exact"]) == (80.0, 6.5)
    losses = {"objective": -5.0, "objective_optimal": -4.0, "regret": 1.0}
    env = {"path": "m.npz", "_target_": "rigor.envs.tabular.Tabular"}
    *_, others = sheets("tabular", env, [losses])
    assert (others.rows[0]["percent"], others.rows[0]["regret"]) == (None, 1.0)
