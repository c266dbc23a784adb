"""When steps are issued and which are sent together, so that collectives overlap computation."""
