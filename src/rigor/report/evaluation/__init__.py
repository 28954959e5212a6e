"""Evaluation of the policy of a run: episodes, numbers, figures and a video."""
