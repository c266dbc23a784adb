"""The calibration of a device: small programs that are timed, and a fit to their times."""
