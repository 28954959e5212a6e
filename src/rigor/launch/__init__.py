"""Execution of runs: one run here, many on this machine, many on a SLURM cluster."""
