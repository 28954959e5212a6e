#!/usr/bin/env bash
# bash launch/breakout.sh: the paper's three agents on Breakout, three seeds each (nine runs)
exec rigor-train env=atari/breakout agent=multihorizon \
  -m variant=time_consistent,time_aware,time_inconsistent seed=0,1,2 "$@"
