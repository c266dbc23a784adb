"""The calibration of a device: small programs that are timed, and the fit of its numbers to them."""
