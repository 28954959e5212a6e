"""The configuration groups of rigor, shipped as a package so that Hydra finds them in a wheel."""
