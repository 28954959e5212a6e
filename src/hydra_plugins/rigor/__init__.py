"""Hydra plugins of rigor."""
