import numpy as np

from rigor.envs.vector import Step
from rigor.report.evaluation.recording import EpisodeRecorder


def steps(script):
    """Yield (observation, actions, step) of two copies from (reward, terminated, end, dummy)."""
    for number, copies in enumerate(script):
        reward, terminated, end, dummy = (np.array(one) for one in zip(*copies, strict=True))
        observation = np.array([[number, 0.0], [number, 1.0]])
        yield (
            observation,
            np.array([number, 10 + number]),
            Step(observation + 1, reward.astype(float), terminated, end, dummy),
        )


def test_episodes_are_recorded_by_hand():
    go, life, over, cut = (1, 0, 0, 0), (2, 1, 0, 0), (3, 1, 1, 0), (4, 0, 1, 0)
    reset = (0, 0, 0, 1)
    progress = []
    recorder = EpisodeRecorder(np.array([2, 1]), lambda *counts: progress.append(counts))
    script = [(life, cut), (over, reset), (reset, go), (cut, over)]
    for call in steps([[tuple(map(int, one)) for one in row] for row in script]):
        recorder(*[one if isinstance(one, np.ndarray) else as_flags(one) for one in call])
    first, second, third = recorder.episodes  # in the order in which they ended
    assert first.reward.tolist() == [4.0]
    assert (first.truncated, first.predicted_steps) == (True, 1)
    assert second.reward.tolist() == [2.0, 3.0]
    assert second.actions.tolist() == [0, 1]
    assert second.observations.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert second.start.tolist() == [0.0, 0.0]
    # to the first lost life, where the bootstrap is cut
    assert (second.truncated, second.predicted_steps) == (False, 1)
    assert third.start.tolist() == [3.0, 0.0]
    assert third.truncated
    # the second copy had played its episodes
    assert len(recorder.episodes) == 3
    assert progress == [(1, 2), (2, 3), (2, 3), (3, 4)]


def as_flags(step):
    step.terminated, step.episode_end, step.dummy = (
        one.astype(bool) for one in (step.terminated, step.episode_end, step.dummy)
    )
    return step


def test_images_are_kept_at_the_start_only():
    recorder = EpisodeRecorder(np.array([1]), lambda *counts: None)
    image, no, yes = np.ones((1, 4, 4)), np.zeros(1, bool), np.ones(1, bool)
    recorder(image, np.zeros(1, int), Step(image, np.ones(1), no, no, no))
    recorder(2 * image, np.zeros(1, int), Step(image, np.ones(1), yes, yes, no))
    (episode,) = recorder.episodes
    assert episode.observations is None
    assert np.array_equal(episode.start, image[0])
