import pytest
from PIL import Image

from rigor.errors import UserError
from rigor.report.figures.style import (
    DPI,
    legend_room,
    line_style,
    new_figure,
    number,
    round_ticks,
    save,
    tick_text,
)


def drawn():
    figure = new_figure(12.0, 5.6, "A figure")
    figure.subplots().plot([0, 1], [0, 1], **line_style(0))
    return figure


def test_28_lines_are_distinct():
    styles = {tuple(line_style(i).values()) for i in range(28)}
    assert len(styles) == 28
    assert line_style(28) == line_style(0)


def test_long_titles_are_broken():
    assert new_figure(2.0, 2.0, "word " * 6)._suptitle.get_text().count("\n") == 1


def test_long_legends_have_columns_if_there_is_room():
    assert legend_room([], 7.0) == (7.0, 1, 0.0)
    assert legend_room(["a"] * 8, 7.0) == (7.0, 1, 8 * 0.24)
    assert legend_room(["a"] * 9, 7.0) == (7.0, 2, 5 * 0.24)
    assert legend_room(["a" * 60] * 9, 7.0) == (7.0, 1, 9 * 0.24)


def test_a_long_label_widens_the_figure():
    width, columns, _ = legend_room(["a" * 100] * 9, 7.0)
    assert (width > 8.0, columns) == (True, 1)


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (95.5, "95.5"), (0.05, "0.05"), (-2000, "-2,000")]
)
def test_numbers(value, text):
    assert number(value) == text


def test_ticks_are_round():
    assert round_ticks(0, 10, 12) == list(range(11))
    assert round_ticks(0, 30, 12) == [0, 5, 10, 15, 20, 25, 30]
    assert round_ticks(1, 15, 15) == list(range(1, 16))


def test_equal_figures_give_equal_bytes(tmp_path):
    names = []
    for folder in ("a", "b/c"):
        png, svg = save(drawn(), tmp_path / folder, "policy")
        names.append((png.name, svg.name))
    assert names == [("policy.png", "policy.svg")] * 2
    for name in names[0]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b/c" / name).read_bytes()
    assert "<dc:date>" not in (tmp_path / "a/policy.svg").read_text()
    with Image.open(tmp_path / "a/policy.png") as image:
        assert image.size == (12 * DPI, 5.6 * DPI)


def test_an_unwritable_directory_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not writable"):
        save(drawn(), tmp_path / "file", "outcomes")


@pytest.mark.parametrize(
    ("value", "spacing", "text"),
    [
        (0.05, 0.05, "0.05"),
        (0.0, 0.05, "0"),
        (0.75, 0.25, "0.75"),
        (1.0, 0.25, "1"),
        (2_500, 2_500, "2.5k"),
        (1_250, 250, "1.25k"),
        (-0.5, 0.25, "−0.5"),
        (200_000, 100_000, "200k"),
        (1_500_000, 500_000, "1.5M"),
        (20, 10, "20"),
        (1_000_001, 1, "1.000001M"),
        (1e-9, 1e-9, "1e-09"),
    ],
)
def test_ticks_are_plain(value, spacing, text):
    assert tick_text(value, spacing) == text
