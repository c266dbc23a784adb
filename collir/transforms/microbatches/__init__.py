"""The gradient of a batch as a sum over microbatches."""
