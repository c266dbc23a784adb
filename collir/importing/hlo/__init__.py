"""Programs of XLA, as it prints them after its partitioner."""
