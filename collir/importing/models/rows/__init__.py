"""The operations of torch, each as lines of ``.coll``: one row an operation."""
