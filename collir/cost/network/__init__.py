"""Groups of ranks on a machine, and the load that their messages put on ports and links."""
