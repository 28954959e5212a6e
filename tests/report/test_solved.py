import pytest
from synthetic import config_of, make_run

from rigor.report import published
from rigor.report.agents import agents_of
from rigor.report.runs import load
from rigor.report.solved import solved_sheets

WEALTH = {
    "periods": 30,
    "wealth": 100.0,
    "early_cost": 100.0,
    "early_utility": 1000.0,
    "late_cost": 150.0,
    "late_utility": 2000.0,
    "scaling": "covariance",
    "_target_": "rigor.envs.wealth.Wealth",
}


@pytest.fixture
def sheets(tmp_path):
    def sheets(env, results, **config):
        runs = []
        for seed, result in enumerate(results):
            whole = config_of("gbwm", "time_consistent", seed) | {"env": env} | config
            path = make_run(
                tmp_path, "gbwm", "time_consistent", seed, 1.0, config=whole, result=result
            )
            runs.append(load(path))
        return solved_sheets(agents_of(runs))

    return sheets


def test_wealth_beside_the_optimum_and_the_paper(sheets):
    result = {"objective_optimal": 800.0, "expected_utility": 1700.0, "p_early": 0.4, "p_late": 0.6}
    wealth, put, split, other = sheets(
        WEALTH, [{**result, "objective": 1.0, "objective_exact": one} for one in (700.0, 740.0)]
    )
    assert not put
    assert not split
    assert not other
    (cells,) = wealth.cells
    row = dict(zip(wealth.headings, cells, strict=True))
    assert row["objective"] == "720 [700, 740]"
    assert (row["optimum"], row["of optimum"], row["n"]) == ("800", "90 %", "2")
    assert (row["discount"], row["risk"]) == ("hyperbolic k=0.05", "mean")
    # the paper's row of T = 30, u = 2000, k = .05: 4/7 of 1000 x .438 and .4 of 2000 x .587
    assert row["paper: objective"] == "720"
    assert (row["paper: E[U]"], row["paper: P(early)"]) == ("1612", "0.438")
    assert row["note"] == ""


def test_the_papers_rows_at_30_periods_are_of_covariance_scaling(sheets):
    result = {"objective": 700.0, "objective_optimal": 800.0}
    wealth, *_ = sheets(WEALTH | {"scaling": "volatility"}, [result])
    assert wealth.rows[0]["note"] == "paper: covariance scaling"
    assert wealth.rows[0]["objective"] == 700.0  # no exact value: the sampled one
    assert "expected_utility" not in wealth.rows[0]


def test_the_put_and_the_rest(sheets):
    result = {"objective": 4.0, "objective_optimal": 5.0, "undiscounted_return": 6.5, "regret": 1.0}
    _, put, *_ = sheets({"steps": 20, "_target_": "rigor.envs.option.Put"}, [result])
    assert (put.rows[0]["percent"], put.rows[0]["undiscounted_return"]) == (80.0, 6.5)
    losses = {"objective": -5.0, "objective_optimal": -4.0, "regret": 1.0}
    *_, other = sheets({"path": "m.npz", "_target_": "rigor.envs.tabular.Tabular"}, [losses])
    assert (other.rows[0]["percent"], other.rows[0]["regret"]) == (None, 1.0)


def test_the_papers_row_is_of_the_same_problem():
    settings = {f"env.{key}": value for key, value in WEALTH.items()}
    settings |= {"discount.gamma": 1, "risk.tau": 0.1}
    choices = {"discount": "exponential", "risk": "cvar"}
    row = published.wealth(choices, settings)
    assert (row["objective"], row["bound"], row["p_early_affordable"]) == (510, "at most", 0.895)
    for key, value in (
        ("env.wealth", 90),
        ("env.periods", 20),
        ("risk.tau", 0.25),
        ("discount.gamma", 0.98),
    ):
        assert published.wealth(choices, settings | {key: value}) is None
    assert published.wealth(choices | {"discount": "cir"}, settings) is None
    assert published.wealth(choices | {"risk": "entropic"}, settings) is None


def test_the_atari_table_is_whole():
    table = published.atari()
    assert (len(table), int(table["in_paper_50"].sum())) == (57, 50)
    assert table[["random", "human"]].notna().all(axis=None)
    assert (table["random"] != table["human"]).all()
