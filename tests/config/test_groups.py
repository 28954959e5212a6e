import itertools
from pathlib import Path

import pytest
from command_line import DISCOUNTS, RISKS, VARIANTS
from omegaconf import OmegaConf

from rigor.config import config, groups
from rigor.envs.atari import GAMES
from rigor.maths import horizons

CONF = Path(__file__).parents[2] / "conf"


def all_options(group: str) -> list[str]:
    """Every option of a group, from the files; those of Atari apart, for they are 57."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def test_groups_have_the_options_of_the_design():
    assert tuple(all_options("discount")) == DISCOUNTS
    assert tuple(all_options("risk")) == RISKS
    assert tuple(all_options("variant")) == VARIANTS
    assert all_options("horizons") == ["multi", "single"]
    assert all_options("agent") == [
        "backward_induction",
        "expected_utility",
        "infinite_horizon",
        "multihorizon",
        "singlehorizon",
    ]
    assert tuple(sorted(horizons.QUADRATURES)) == (
        "gauss_legendre",
        "lower",
        "midpoint",
        "right",
        "upper",
    )


def test_every_atari_game_has_a_file_that_names_it():
    text = (CONF / "env/atari/pong.yaml").read_text()
    files = {path.stem: path.read_text() for path in (CONF / "env/atari").glob("[!_]*.yaml")}
    assert sorted(files) == sorted(GAMES)
    assert len(files) == 57
    for game, found in files.items():
        assert found == text.replace("game: pong", f"game: {game}")


def inherited_keys(path: Path) -> set[str]:
    """Return the keys that the files of the same group, named in `defaults`, have already set."""
    found: set[str] = set()
    for parent in OmegaConf.load(path).get("defaults", []):
        file = path.parent / f"{parent}.yaml"
        if isinstance(parent, str) and file.exists():
            found |= set(OmegaConf.load(file)) | inherited_keys(file)
    return found


def test_every_key_has_a_comment_in_the_file_that_sets_it_first():
    files = [path for path in CONF.rglob("*.yaml") if path.parent.name != "experiment"]
    for path in files:
        lines = path.read_text().splitlines()
        for above, line in itertools.pairwise(["", *lines]):
            key = line.partition(":")[0]
            if not key.isidentifier() or key in ("defaults", "hydra", *inherited_keys(path)):
                continue
            assert "  # " in line or above.startswith("# "), f"{path}: {key}"


def test_every_option_has_the_schema_that_its_file_names():
    for group in groups.SCHEMAS:
        assert set(groups.options_of(group).values()) == set(groups.SCHEMAS[group])
    envs = groups.options_of("env")
    assert envs["cartpole"] is envs["gymnasium"] is groups.Gymnasium
    assert envs["atari/<game>"] is groups.Atari
    assert groups.options_of("agent")["multihorizon"] is groups.Learner
    assert groups.options_of("experiment") == {}


@pytest.mark.parametrize(
    ("choice", "option"),
    [
        ("discount.gamma", "exponential"),
        ("risk", "mean"),
        ("env", "rigor.envs.gymnasium.Gymnasium"),
    ],
)
def test_an_object_is_named_by_its_option_if_there_is_one(cartpole, choice, option):
    group = choice.partition(".")[0]
    assert config.build(cartpole).option(group) == option
    assert config.build(cartpole, {group: "mine"}).option(group) == "mine"  # as typed
