import pytest
from cli import TINY, choices, composed

from rigor.execute import execute
from rigor.launch.job import job
from rigor.learning import evaluate
from rigor.tracking import progress
from rigor.tracking.rundir import RunDirectory


@pytest.mark.slow
def test_a_run_shows_that_it_is_alive_while_it_evaluates(tmp_path, monkeypatch):
    one = composed(*TINY, "train.steps=40", "train.learning_starts=1", f"out={tmp_path}")
    beats, evaluations = [], []
    play, write_status = evaluate.play, RunDirectory.write_status

    def write(self, state, **fields):
        beats.append((state, fields.get("step")))
        write_status(self, state, **fields)

    def played(*given):
        before = len(beats)
        games = play(*given)
        evaluations.append((beats[before:], int(games.length.sum())))
        return games

    monkeypatch.setattr(progress, "BEAT_EVERY", 0.0)
    monkeypatch.setattr(progress, "_BEAT_AFTER", 0.0)
    monkeypatch.setattr(RunDirectory, "write_status", write)
    monkeypatch.setattr(evaluate, "play", played)
    execute(job(one, choices(one)), None)
    assert [step for while_, _ in evaluations for _, step in while_[:1]] == [20, 40, 40]
    for while_, steps in evaluations:
        assert while_ == [("running", while_[0][1])] * steps
