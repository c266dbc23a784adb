"""Layout changes and local steps in the order that costs least."""
