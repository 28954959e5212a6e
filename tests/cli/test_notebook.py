"""`rigor.train` in this process."""

import threading

import pytest
from command_line import TINY

import rigor
from rigor.errors import UserError


@pytest.mark.slow
def test_a_run_is_trained_and_loaded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = rigor.train([*TINY, "env=cartpole"])
    assert run.status["state"] == "done"
    assert {"score", "objective", "episodes_cut"} <= run.result.keys()
    assert len(run.metrics) > 0
    assert run.path.name.startswith("cartpole-")
    again = []
    thread = threading.Thread(target=lambda: again.append(rigor.train([*TINY, "env=cartpole"])))
    thread.start()
    thread.join()
    assert again[0].result == run.result
    assert "done, skipped" in capsys.readouterr().out


def test_an_exact_agent_in_a_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    choices = ["env=american_put", "env.steps=3", "agent=backward_induction", "tracker=none"]
    solved = []
    thread = threading.Thread(target=lambda: solved.append(rigor.train(choices)))
    thread.start()
    thread.join()
    assert solved[0].result["regret"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [0, 4])
def test_the_result_and_the_policy_have_one_initial_stock(tmp_path, monkeypatch, rollouts):
    """Also where the end is no time for an evaluation."""
    monkeypatch.chdir(tmp_path)
    risky = ["risk=cvar", "evaluate.every=0.3", f"outer.rollouts={rollouts}"]
    run = rigor.train([*TINY, "env=cartpole", *risky])
    assert run.result["initial_stock"] == run.policy().initial_stock != 0.0


def test_an_exact_agent_with_options_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my own" / "discount").mkdir(parents=True)
    text = "_target_: rigor.maths.discount.Exponential\ngamma: 0.5\n"
    (tmp_path / "my own" / "discount" / "short.yaml").write_text(text)
    choices = ["env=tabular", "agent=backward_induction", "discount=short", "tracker=none"]
    run = rigor.train(choices, config_dir="my own")
    assert run.config["discount"]["gamma"] == 0.5
    assert run.result["objective_optimal"] == pytest.approx(run.result["objective_exact"])


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ("env=cartpole", r"overrides='env=cartpole': give a list of texts, such as"),
        (["experiment=gbwm_cvar"], r"experiment=gbwm_cvar: describes several runs; rigor\.train"),
        (["hydra/launcher=local"], r"hydra/launcher=local: describes several runs; rigor\.train"),
        (["seed=0,1"], r"seed=0,1: describes several runs; rigor\.train trains one"),
        (["discount=hyperbolc"], "discount=hyperbolc: no such option; did you mean hyperbolic"),
        (["train.stepss=3"], r"train\.stepss: no such key; did you mean train\.steps"),
        (["train.steps=-1"], r"train\.steps=-1: must be 1 or more"),
        (["tracker.name=comet"], r"tracker\.name=comet: choose one of none, wandb, tensorboard"),
    ],
)
def test_mistakes_are_one_line(overrides, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=part) as caught:
        rigor.train(overrides)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
