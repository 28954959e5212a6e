"""The commands, one in each module: `rigor-train` and the ones that read its run directories."""
