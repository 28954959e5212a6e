import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rigor.errors import UserError
from rigor.runs.config_file import read_config, read_name

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Half a kilobyte that stands for a thousand million values."""

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="$\\"))
TEXTS = TEXTS | st.sampled_from(["1e-3", "0x1f", "on", "no", "1_000", "2020-01-02", "12:30:00"])


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        LEAVES | TEXTS | st.lists(LEAVES | TEXTS, max_size=3),
        max_size=6,
    )
)
def test_what_omegaconf_wrote_is_read_as_omegaconf_reads_it(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create({"group": config})))
    found = read_config(path)
    assert found == {"group": config}
    for key, value in config.items():
        assert type(found["group"][key]) is type(value)


def test_a_number_typed_by_hand_is_a_number(tmp_path):
    (tmp_path / "config.yaml").write_text("lr: 1e-3\nseed: 3\ntext: '1e-3'\n")
    assert read_config(tmp_path / "config.yaml") == {"lr": 0.001, "seed": 3, "text": "1e-3"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "it has YAML aliases"),
        ("a: 2020-01-02\n", "it holds a date"),
        ("a: !!set {x}\n", "it holds a set"),
        ("a: " + "[" * 5000, "not a readable config"),
        ("a: " + "{b: " * 5000, "not a readable config"),
        ("a: !!python/object:os.system {}\n", "not a readable config"),
        ("", "not a config, but a NoneType"),
        ("env: 5\n", "not a config of rigor (env is no mapping)"),
        ("seed: 0\ndiscount: [hyperbolic]\n", "not a config of rigor (discount is no mapping)"),
        ("train:\n", "not a config of rigor (train is no mapping)"),
        ("choices: cartpole\n", "not a config of rigor (choices is no mapping)"),
        ("code: 5\n", "not a config of rigor (code is no mapping)"),
    ],
)
def test_what_no_run_writes_is_one_line(tmp_path, text, reason):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        read_config(tmp_path / "config.yaml")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_star_in_a_text_is_no_alias(tmp_path):
    (tmp_path / "config.yaml").write_text("a: 'x * y'\nb: x*y\n")
    assert read_config(tmp_path / "config.yaml") == {"a": "x * y", "b": "x*y"}


def test_the_name_is_read_without_parsing(tmp_path):
    path = tmp_path / "config.yaml"
    assert read_name(path) is None
    path.write_text("# config hash: 1a2b\nname: Acrobot-v1-mean-s0-1a2b3c4d\nenv: [\n")
    assert read_name(path) == "Acrobot-v1-mean-s0-1a2b3c4d"
    path.write_text("# config hash: 1a2b\nseed: 3\n")
    assert read_name(path) is None
