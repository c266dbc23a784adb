"""Reports on programs: costs and comparisons, each for people and for programs."""
