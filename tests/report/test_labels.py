import pytest

from rigor.report.labels import curve_labels, distinctions
from rigor.tracking.rundir import RunDirectory, config_hash, directory_name


@pytest.fixture
def make(tmp_path):
    def make(env, seed, lr):
        config = {"env": env, "seed": seed, "agent": {"lr": lr, "layers": [1]}, "out": "x"}
        digest = config_hash(config)
        path = tmp_path / directory_name({"env": env, "risk": "mean"}, seed, digest)
        RunDirectory.open(path, config, digest).close()
        return path

    return make


def test_seeds_and_choices_need_no_settings(make):
    paths = [make("put", 0, 0.1), make("put", 1, 0.1), make("gbwm", 0, 0.1)]
    assert curve_labels(paths) == ["put-mean s0", "put-mean s1", "gbwm-mean s0"]


def test_settings_tell_apart_what_names_do_not(make):
    paths = [make("put", seed, lr) for lr in (0.1, 1e-3) for seed in (0, 1)]
    paths.append(make("gbwm", 0, 0.1))
    assert distinctions(paths) == [*["agent.lr=0.1"] * 2, *["agent.lr=0.001"] * 2, ""]
    assert curve_labels(paths)[2] == "put-mean agent.lr=0.001 s0"


def test_what_cannot_be_read_is_left_out(make, tmp_path):
    paths = [make("put", 0, 0.1), make("put", 0, 0.2)]
    (paths[0] / "config.yaml").unlink()
    assert distinctions(paths)[0] == ""
    assert "agent.lr=0.2" in distinctions(paths)[1]
    assert curve_labels([tmp_path / "mine"]) == ["mine"]
    assert curve_labels([]) == []
