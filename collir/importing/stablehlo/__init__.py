"""Programs of StableHLO, from their text."""
