"""Learned agents reach the optimum in two rows of the paper's tables."""

import csv
import json

import pytest
from command_line import rigor_train

ROW = ["env.periods=10", "env.scaling=volatility", "discount=exponential", "discount.gamma=1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "row"),
    [
        ("gbwm_neutral", ["env.late_utility=2000", "train.steps=700_000"]),
        ("gbwm_cvar", ["env.late_utility=1000", "train.steps=300_000"]),
    ],
)
def test_wealth_management_is_learned_to_97_percent_of_the_optimum(tmp_path, experiment, row):
    done = rigor_train(f"experiment={experiment}", *ROW, *row, "tracker=none", cwd=tmp_path)
    assert done.code == 0, done.err
    (path,) = tmp_path.glob("runs/gbwm-*/result.json")
    result = json.loads(path.read_text())
    assert result["objective_exact"] > 0.97 * result["objective_optimal"]
    # the experiment ends with a table of learned, exact and published values
    (table,) = tmp_path.glob("runs/sweeps/*/report/tables/wealth.csv")
    (line,) = csv.DictReader(table.open())
    assert float(line["objective"]) == result["objective_exact"]
    assert float(line["optimal"]) == result["objective_optimal"]
    assert line["paper_objective"]
