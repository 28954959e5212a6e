from rigor.report.figures.score_panels import probability_of_improvement_panel


def test_each_pair_has_x_at_the_left_and_y_at_the_right_of_its_interval():
    ends = {"probability_low": 0.2, "probability_high": 0.9}
    rows = [
        {"x": x, "y": y, "probability": p, **ends} for x, y, p in [("a", "b", 0.7), ("a", "c", 0.4)]
    ]
    left, right = probability_of_improvement_panel(rows).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["a", "a"]
    assert [label.get_text() for label in right.get_yticklabels()] == ["c", "b"]
    assert left.get_ylim() == right.get_ylim()
    marks = {tuple(line.get_ydata()): line.get_xdata()[0] for line in left.lines[:2]}
    assert marks == {(1,): 0.7, (0,): 0.4}  # the first pair is on top
