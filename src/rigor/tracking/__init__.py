"""What a run leaves behind: its directory, metrics and progress, and their mirror in W&B."""
