import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from rigor.errors import UserError
from rigor.report.figures.learning_curves import _groups, learning_curves, mark_stopped, mean_curve
from rigor.report.figures.style import new_figure


def curve(scale, n=10, objective=False):
    steps = np.arange(1, n + 1) * 1000
    score = scale * steps / steps[-1]
    columns = {"eval_score": score, "eval_score_low": score - 1, "eval_score_high": score + 1}
    if objective:
        columns["eval_objective"] = score / 10
    frame = pd.DataFrame({"steps": steps, **columns})
    training = pd.DataFrame({"steps": steps + 500, "loss": 0.1})  # rows of training only
    return pd.concat([frame, training]).sort_values("steps")


def size(path):
    with Image.open(path) as image:
        image.verify()
        return image.size


def has_colour(path):
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    return (pixels.max(axis=-1) - pixels.min(axis=-1)).max() > 100


def test_one_panel(tmp_path):
    path = learning_curves([("cartpole-s0-1a2b3c4d", curve(500))], tmp_path / "a.png")
    assert path == tmp_path / "a.png"
    width, height = size(path)
    assert (width, 700 < height < 850) == (1050, True)
    assert has_colour(path)


def test_the_objective_has_a_panel(tmp_path):
    runs = [("a", curve(500, objective=True)), ("b", curve(300))]
    assert size(learning_curves(runs, tmp_path / "a.png"))[0] == 1800
    assert size(learning_curves(runs, tmp_path / "b.png", objective=False))[0] == 1050


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [("a", pd.DataFrame())],
        [("a", pd.DataFrame({"steps": [1, 2], "loss": [0.1, 0.2]}))],
        [("a", pd.DataFrame({"steps": [], "eval_score": []}))],
    ],
)
def test_runs_without_evaluations(tmp_path, runs):
    path = learning_curves(runs, tmp_path / "a.png")
    assert size(path)[0] == 1050


def test_one_point_and_no_interval(tmp_path):
    bare = pd.DataFrame({"steps": [10], "eval_score": [1.0]})
    assert has_colour(learning_curves([("a", bare)], tmp_path / "a.png"))


def test_many_runs_do_not_blow_up_the_figure(tmp_path):
    runs = [(f"game{i}-s{seed}-1a2b3c4d", curve(i + 1)) for i in range(30) for seed in range(2)]
    width, height = size(learning_curves(runs, tmp_path / "a.png"))
    assert (width, height < 1500) == (1050, True)


def test_seeds_of_one_configuration_are_one_group():
    frame = pd.DataFrame()
    labels = [
        "put-mean-s0-1a2b3c4d",
        "put-mean-s1-2a2b3c4d",
        "put-cvar-s0-3a2b3c4d",
        "put mean agent.lr=0.1 s0",
        "put mean agent.lr=0.1 s12",
        "tuned seed=0",
        "tuned seed=1",
        "atlantis2",
        "s0-1a2b3c4d",
    ]
    groups = _groups([(label, frame) for label in labels])
    assert {name: len(seeds) for name, seeds in groups.items()} == {
        "put-mean": 2,
        "put-cvar": 1,
        "put mean agent.lr=0.1": 2,
        "tuned": 2,
        "atlantis2": 1,
        "s0-1a2b3c4d": 1,
    }


def test_the_mean_is_over_the_steps_that_all_seeds_reach():
    # Seed a is 0 at 10 and 2 at 30; seed b is 4 at 20 and 6 at 40. Both reach 20 to 30.
    a = pd.DataFrame({"steps": [10, 30], "x": [0.0, 2.0]})
    b = pd.DataFrame({"steps": [20, 40], "x": [4.0, 6.0]})
    mean = mean_curve([a, b], "x")
    assert mean["steps"].tolist() == [20, 30]
    assert mean["x"].tolist() == [2.5, 3.5]  # (1 + 4)/2, (2 + 5)/2


def test_a_seed_that_ended_early_is_marked():
    """Two seeds end at 30 and at 100 % of the steps: no mean goes on with one of them."""
    axes = new_figure(2.0, 2.0, "").subplots()
    a = pd.DataFrame({"steps": [10, 30], "x": [0.0, 2.0]})
    b = pd.DataFrame({"steps": [10, 30, 100], "x": [4.0, 6.0, 60.0]})
    mark_stopped(axes, [a, b], "x", "black")
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines] == [(30, 2.0)]
    assert mean_curve([a, b], "x")["x"].tolist() == [2.0, 4.0]


def test_an_unwritable_path_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not writable"):
        learning_curves([("a", curve(1))], tmp_path / "file" / "a.png")


def test_pyplot_is_not_imported(tmp_path):
    code = (
        "import sys, pandas as pd; "
        "from rigor.report.figures.learning_curves import learning_curves; "
        "learning_curves([('a', pd.DataFrame({'steps': [1], 'eval_score': [1.0]}))], sys.argv[1]); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.png")], check=True)
