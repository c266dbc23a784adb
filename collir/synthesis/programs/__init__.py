"""The cheapest programs from one layout to another, and the passes that put them in place."""
