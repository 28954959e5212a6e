import pytest

from rigor.report.data.labels import (
    curve_labels,
    distinctions,
    settings_text,
    short_keys,
    shorten,
    with_settings,
)
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash, directory_name


@pytest.fixture
def make(tmp_path):
    def make(env, seed, lr):
        config = {
            "env": {"name": env},
            "seed": seed,
            "agent": {"lr": lr, "layers": [1]},
            "out": "x",
        }
        digest = config_hash(config)
        path = tmp_path / directory_name({"env": env, "risk": "mean"}, seed, digest)
        RunDirectory.open(path, config, digest).close()
        return path

    return make


def test_different_names_need_no_settings(make):
    paths = [make("put", 0, 0.1), make("put", 1, 0.1), make("gbwm", 0, 0.1)]
    assert curve_labels(paths) == ["put-mean s0", "put-mean s1", "gbwm-mean s0"]


def test_settings_distinguish_runs_of_one_name(make):
    paths = [make("put", seed, lr) for lr in (0.1, 1e-3) for seed in (0, 1)]
    paths.append(make("gbwm", 0, 0.1))
    assert distinctions(paths) == [*["lr=0.1"] * 2, *["lr=1e-3"] * 2, ""]
    assert curve_labels(paths)[2] == "put-mean lr=1e-3 s0"


def test_values_that_differ_in_a_late_digit_stay_different(make):
    paths = [make("put", 0, lr) for lr in (0.123456701, 0.123456702)]
    assert distinctions(paths) == ["agent.lr=0.123456701", "agent.lr=0.123456702"]
    paths = [make("gbwm", 0, lr) for lr in (0.123456701, 0.234567012)]
    assert distinctions(paths) == ["lr=0.1235", "lr=0.2346"]


def test_unreadable_configs_are_left_out(make, tmp_path):
    paths = [make("put", 0, 0.1), make("put", 0, 0.2)]
    (paths[0] / "config.yaml").unlink()
    assert distinctions(paths)[0] == ""
    assert "lr=0.2" in distinctions(paths)[1]
    assert curve_labels([tmp_path / "mine"]) == ["mine"]
    assert curve_labels([]) == []


def test_settings_belong_to_the_last_part_of_a_name():
    names = ["a-b-x train.learning_rate=1e-05", "a-b-y train.learning_rate=3e-05"]
    left = ["x train.learning_rate=1e-05", "y train.learning_rate=3e-05"]
    assert shorten(names) == ("a-b-*", left)
    negative = ["a-b risk.beta=-0.0005", "a-b risk.beta=-0.001"]
    assert shorten(negative) == ("a-*", ["b risk.beta=-0.0005", "b risk.beta=-0.001"])


def test_settings_are_short_unless_that_is_ambiguous():
    keys = ["network._target_", "train.learning_rate", "agent.layers", "network.layers"]
    assert short_keys(keys) == {
        "network._target_": "network",
        "train.learning_rate": "learning_rate",
        "agent.layers": "agent.layers",
        "network.layers": "network.layers",
    }
    values = {"network._target_": "rigor.config.schemas.MLP", "train.learning_rate": "0.0013"}
    assert settings_text(values, keys) == "network=mlp learning_rate=1.3e-3"


def test_settings_stand_before_the_hash():
    name = with_settings("cartpole-mean-s0-1a2b3c4d", "learning_rate=1.3e-3")
    assert name == "cartpole-mean-s0 learning_rate=1.3e-3 1a2b3c4d"
    assert with_settings("1a2b3c4d", "lr=1") == "lr=1 1a2b3c4d"  # the rest of a shortened name
    assert with_settings("s0-1a2b3c4d", "") == "s0-1a2b3c4d"
    assert with_settings("mine", "lr=1") == "mine lr=1"
