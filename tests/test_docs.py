"""The examples of the documentation run as printed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, refused, rigor_train

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in this language."""
    return [
        block.removeprefix(f"{language}\n")
        for block in (DOCS / page).read_text().split("```")[1::2]
        if block.startswith(f"{language}\n")
    ]


@pytest.mark.slow
def test_the_documented_problem_is_solved(tmp_path):
    (code,), (yaml,) = blocks("exact.md", "python"), blocks("exact.md", "yaml")
    assert len(code.splitlines()) <= 40
    (tmp_path / "my_problems.py").write_text(code)
    (tmp_path / "mine" / "env").mkdir(parents=True)
    (tmp_path / "mine" / "env" / "house.yaml").write_text(yaml)
    own = ("--config-dir", "mine", "env=house", "agent=backward_induction", "tracker=none")
    for risk, at_least, at_most in (("mean", 108.0, 110.0), ("cvar", 90.0, 108.0)):
        done = rigor_train(*own, f"risk={risk}", f"out={risk}", cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
        (path,) = (tmp_path / risk).glob("house-*/result.json")
        result = json.loads(path.read_text())
        assert at_least < result["objective"] < at_most
        assert result["regret"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_the_documented_environment_is_learned(tmp_path):
    code, table = blocks("own_environment.md", "python")
    (yaml,) = blocks("own_environment.md", "yaml")
    (tmp_path / "my_envs.py").write_text(code)
    (tmp_path / "mine" / "env").mkdir(parents=True)
    (tmp_path / "mine" / "env" / "corridor.yaml").write_text(yaml)
    choices = ("--config-dir", "mine", *TINY, "env=corridor", "discount=hyperbolic", "out=out")
    done = rigor_train(*choices, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = result_of(tmp_path / "out")
    # 1 for leaving, 10 at the exit, and no other reward
    assert result["score"] in (0.0, 1.0, 10.0)

    (tmp_path / "model.py").write_text(table)
    subprocess.run([sys.executable, "model.py"], cwd=tmp_path, check=True)
    choices = ("env=tabular", "env.path=model.npz", "agent=backward_induction", "risk=cvar")
    done = rigor_train(*choices, "tracker=none", "out=solved", cwd=tmp_path)
    assert done.code == 0, done
    # ten decisions with rewards of at most 1: the return is at most their discounted sum
    assert 0.0 < result_of(tmp_path / "solved")["objective"] < sum(0.99**t for t in range(10))


@pytest.fixture
def own(tmp_path):
    """Write the module and the two configs of `own_discount.md`; return the flag for them."""
    (code,), files = blocks("own_discount.md", "python"), blocks("own_discount.md", "yaml")
    (tmp_path / "my_choices.py").write_text(code)
    for name, text in zip(("discount/delayed", "risk/soft_loss"), files, strict=True):
        path = tmp_path / "mine" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return ("--config-dir", "mine")


def result_of(directory):
    """Return the result of the one run in a directory."""
    (path,) = directory.glob("*/result.json")
    return json.loads(path.read_text())


@pytest.mark.slow
def test_the_documented_discount_and_risk_measure_are_learned(tmp_path, own):
    choices = ("discount=delayed", "risk=soft_loss", "out=out")
    done = rigor_train(*own, *TINY, *choices, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = result_of(tmp_path / "out")
    assert result["initial_stock"] != 0.0  # searched with the user's f
    (length,) = result["scores"]  # one episode, whose risk measure is its return
    expected = sum(min(1.0, 0.98 ** (t - 10)) for t in range(int(length)))
    assert result["objective"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mine", "ours", "near"),
    [
        # with delay 0 the discount is exponential, and with width 0 the utility is CVaR's at 1/2
        ("discount=delayed discount.delay=0 discount.gamma=.9", "discount.gamma=.9", 1e-12),
        ("risk=soft_loss risk.width=1e-5", "risk=cvar risk.tau=.5", 2e-5),
    ],
)
def test_the_documented_discount_and_risk_measure_are_solved(tmp_path, own, mine, ours, near):
    results = []
    for name, choices in (("mine", mine), ("ours", ours)):
        command = ("env=tabular", "agent=backward_induction", "tracker=none", f"out={name}")
        done = rigor_train(*own, *command, *choices.split(), cwd=tmp_path)
        assert done.code == 0, done
        results.append(result_of(tmp_path / name))
    for key in ("objective", "objective_optimal"):
        assert results[0][key] == pytest.approx(results[1][key], abs=near)


NOT_FOUND = "No module named 'nowhere'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "choices", "parts"),
    [
        ("delay: 3", "discount=wrong", ("discount: its YAML file has no _target_",)),
        ("delay: 3", "discount=wrong agent=multihorizon", ("discount: its YAML file has no",)),
        ("_target_: nowhere.X", "discount=wrong", ("discount: ", NOT_FOUND)),
        ("_target_: nowhere.X", "discount=wrong agent=multihorizon", ("discount: ", NOT_FOUND)),
        ("_target_: nowhere.X", "risk=wrong env=atari/pong", ("risk: ", NOT_FOUND)),
        ("_target_: my_choices.Delayed", "discount=wrong", ("discount: ", "'delay' and 'gamma'")),
        ("_target_: my_choices.SoftLoss\nwidth: 1", "discount=wrong", ("has no factor, step",)),
        ("_target_: nowhere.X", "risk=softloss", ("risk=softloss", "did you mean soft_loss?")),
    ],
)
def test_a_mistake_in_a_user_class_is_refused_in_one_line(tmp_path, own, text, choices, parts):
    for group in ("discount", "risk"):
        (tmp_path / "mine" / group / "wrong.yaml").write_text(text + "\n")
    refused(rigor_train(*own, *TINY, *choices.split(), "out=out", cwd=tmp_path), *parts)
    assert not (tmp_path / "out").exists()
