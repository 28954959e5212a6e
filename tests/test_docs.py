"""What the documentation shows is run as it stands there."""

import json
from pathlib import Path

import pytest
from cli import rigor_train

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return [
        block.removeprefix(f"{language}\n")
        for block in (DOCS / page).read_text().split("```")[1::2]
        if block.startswith(f"{language}\n")
    ]


@pytest.mark.slow
def test_the_problem_of_ones_own_is_solved(tmp_path):
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
