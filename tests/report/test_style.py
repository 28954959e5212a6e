import pytest
from PIL import Image

from rigor.errors import UserError
from rigor.report.style import DPI, key_room, line_style, new_figure, number, round_ticks, save


def drawn():
    figure = new_figure(12.0, 5.6, "A picture")
    figure.subplots().plot([0, 1], [0, 1], **line_style(0))
    return figure


def test_28_lines_can_be_told_apart():
    styles = {tuple(line_style(i).values()) for i in range(28)}
    assert len(styles) == 28
    assert line_style(28) == line_style(0)


def test_long_titles_are_broken():
    assert new_figure(2.0, 2.0, "word " * 6)._suptitle.get_text().count("\n") == 1


def test_names_stand_side_by_side_where_there_is_room():
    assert key_room([], 7.0) == (7.0, 1, 0.0)
    assert key_room(["a"] * 8, 7.0) == (7.0, 1, 8 * 0.24)
    assert key_room(["a"] * 9, 7.0) == (7.0, 2, 5 * 0.24)
    assert key_room(["a" * 60] * 9, 7.0) == (7.0, 1, 9 * 0.24)


def test_a_long_name_widens_the_figure():
    width, columns, _ = key_room(["a" * 100] * 9, 7.0)
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


def test_both_files_are_the_same_every_time(tmp_path):
    names = []
    for place in ("a", "b/c"):
        png, svg = save(drawn(), tmp_path / place, "policy")
        names.append((png.name, svg.name))
    assert names == [("policy.png", "policy.svg")] * 2
    for name in names[0]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b/c" / name).read_bytes()
    assert "<dc:date>" not in (tmp_path / "a/policy.svg").read_text()
    with Image.open(tmp_path / "a/policy.png") as image:
        assert image.size == (12 * DPI, 5.6 * DPI)


def test_an_unwritable_place_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="not writable"):
        save(drawn(), tmp_path / "file", "outcomes")
