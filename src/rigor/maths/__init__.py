"""The mathematics of rigor: arrays in, arrays out; no configuration, environment or logger."""
