import numpy as np
import pytest
from PIL import Image

from rigor.errors import UserError
from rigor.report.figures import return_distributions as module
from rigor.report.figures.return_distributions import (
    Outcome,
    distribution_figure,
    read_outcomes,
    return_distributions,
)


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_outcomes_are_read_and_other_files_are_refused(tmp_path):
    path = tmp_path / "outcomes.npz"
    np.savez(path, returns=[0.0, 10.0], probabilities=[0.25, 0.75])
    assert [one.tolist() for one in read_outcomes(path)] == [[0, 10], [0.25, 0.75]]
    np.savez(path, returns=[0.0])
    with pytest.raises(UserError, match=r"outcomes\.npz: not the outcomes of a run"):
        read_outcomes(path)
    path.write_bytes(b"half a file")
    with pytest.raises(UserError, match=r"outcomes\.npz: not the outcomes of a run"):
        read_outcomes(path)


def test_a_few_atoms_are_stems():
    figure = distribution_figure(
        np.array([0.0, 800.0, 1500.0]),
        np.array([0.05, 0.9, 0.05]),
        {"mean": 795.0, "objective": 795.0 + 1e-7, "−c₀*": 800.0},
        "utility",
    )
    (axes,) = figure.axes
    stems = axes.collections[0].get_segments()
    assert np.array([one[1] for one in stems]) == pytest.approx(
        np.array([(0, 0.05), (800, 0.9), (1500, 0.05)])
    )
    assert sorted(texts(axes)) == ["5 %", "5 %", "90 %"]
    assert legend(figure) == ["mean = objective = 795", "−c₀* = 800"]
    assert axes.get_xlabel() == "x = discounted return (utility)"


def test_a_single_atom():
    (axes,) = distribution_figure(np.array([5.0]), np.ones(1), {"mean": 5.0}).axes
    assert axes.get_xlim() == (4.5, 5.5)


def test_many_atoms_are_a_histogram_above_the_cumulative_distribution():
    returns = np.linspace(0, 100, 1001)
    probabilities = np.full(1001, 0.7 / 1000)
    probabilities[0] = 0.3
    figure = distribution_figure(returns, probabilities, {"mean": 35.035}, "currency")
    upper, lower = figure.axes
    bins, edges, _ = upper.patches[0].get_data()
    assert (edges[0], edges[-1]) == pytest.approx((0, 100))
    assert bins.sum() == pytest.approx(0.7, abs=0.001)
    assert upper.collections[0].get_segments()[0][1].tolist() == [0, 0.3]
    assert texts(upper) == ["30 %"]
    x, y = lower.lines[0].get_data()
    # The line is at 0 from the left end of the axis to the first return.
    assert (x[0], y[0], x[1], y[1], y[-1]) == pytest.approx((-5, 0, 0, 0.3, 1))
    assert legend(figure) == ["probability of a bin", "probability of one value", "mean = 35.03"]


def test_far_tails_are_cut_off():
    returns = np.append(np.linspace(0, 10, 100), 1e6)
    probabilities = np.append(np.full(100, 0.01), 1e-12)
    upper, _ = distribution_figure(returns, probabilities, {}).axes
    assert upper.get_xlim()[1] < 11


FEW = np.array([0.0, 10.0]), np.array([0.25, 0.75])
MANY = np.append(np.linspace(0, 10, 100), 1e6), np.append(np.full(100, 0.01), 1e-12)


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Return a function that draws some runs and returns their figure."""
    figures = []
    save = module.save_png
    monkeypatch.setattr(module, "save_png", lambda f, path: figures.append(f) or save(f, path))

    def draw(runs):
        path = return_distributions(runs, tmp_path / "a.png")
        with Image.open(path) as image:
            image.verify()
        return figures[-1]

    return draw


def test_the_distributions_of_several_runs(drawn):
    figure = drawn([Outcome("put-x-mean s0", *FEW), Outcome("put-x-cvar s0", *MANY)])
    assert figure._suptitle.get_text() == "Discounted return of put-x-*"
    assert legend(figure) == ["mean", "cvar"]
    (axes,) = figure.axes
    assert axes.get_xlim() == pytest.approx((-0.5, 10.5))  # without the far tail
    steps, dot = axes.lines[:2]
    assert steps.get_xdata() == pytest.approx([-0.5, 0, 10, 10.5])
    assert steps.get_ydata() == pytest.approx([0, 0.25, 1, 1])
    assert (dot.get_xdata(), dot.get_ydata()) == ([7.5], [0.25])
    colours = [one.get_color() for one in axes.lines]
    assert colours[0] == colours[1] != colours[2] == colours[3]
    assert axes.get_xlabel().endswith("(reward; 99.9 % of the probability shown)")


def test_the_objective_has_a_diamond(drawn):
    figure = drawn([Outcome("put-mean s0", *FEW, 7.5), Outcome("put-cvar s0", *FEW, -3.0)])
    (axes,) = figure.axes
    diamonds = [one.get_xdata()[0] for one in axes.lines if one.get_marker() == "D"]
    assert diamonds == [7.5, -3.0]
    assert axes.get_xlim()[0] < -3.0


def test_seeds_share_a_line_in_the_legend(drawn):
    figure = drawn([Outcome(f"put-mean s{seed}", *FEW) for seed in (0, 1)])
    assert legend(figure) == ["put-mean"]
    assert len({one.get_color() for one in figure.axes[0].lines}) == 1
    assert figure.axes[0].get_xlabel() == "x = discounted return (reward)"


def test_a_single_run_is_drawn_by_itself(drawn):
    figure = drawn([Outcome("put-mean s0", *FEW)])
    assert figure._suptitle.get_text() == "Discounted return of put-mean s0"
    assert legend(figure) == ["mean = 7.5"]
    figure = drawn([Outcome("put-cvar s0", *FEW, 2.5, "objective (cvar tau=0.4)")])
    assert legend(figure) == ["mean = 7.5", "objective (cvar tau=0.4) = 2.5"]


def test_many_runs_with_a_certain_return(drawn):
    runs = [Outcome(f"a-b{i} s0", np.array([5.0]), np.ones(1)) for i in range(40)]
    figure = drawn(runs)
    assert figure.axes[0].get_xlim() == (4.5, 5.5)
    assert figure.get_size_inches()[1] < 9


def test_an_unwritable_path_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not writable"):
        return_distributions(
            [Outcome("a", *FEW), Outcome("b", *FEW)], tmp_path / "file" / "outcomes.png"
        )
