"""One run: its job, its directory and files, and its copy in W&B."""
