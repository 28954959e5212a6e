"""The figures of a report and of `rigor-figure`."""
