#!/usr/bin/env bash
# bash launch/quadrature.sh: consistency apart from quadrature, on Breakout (twelve runs)
#
# The released rule puts a third of its weight on a horizon with gamma = 0, which a consistent agent
# loses after t = 0 and an inconsistent one applies at every decision. Under an accurate rule only
# the consistency differs.
exec rigor-train env=atari/breakout agent=multihorizon \
  -m variant=time_consistent,time_inconsistent horizons.quadrature=lower,gauss_legendre \
  seed=0,1,2 "$@"
