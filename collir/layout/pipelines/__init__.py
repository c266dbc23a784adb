"""Pipelines as plain values: tasks, the order of tasks at each place, and rules for such orders.

- ``tasks``: tasks, and which tasks of a microbatch need which others at which places
- ``schedule``: the order of tasks at each place, and what is wrong with one
- ``timing``: the earliest start of each task, and the cycle of a schedule that deadlocks
- ``rules``: the schedules of the literature by their names
- ``orders``: the orders of these rules
"""
