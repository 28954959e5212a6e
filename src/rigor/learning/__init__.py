"""Learning: network, replay, agent, the training loop, evaluation and checkpoints."""
