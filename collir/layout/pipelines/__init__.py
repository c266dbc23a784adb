"""Pipelines as plain values: tasks, the order of tasks at each place, and rules for such orders.

- ``tasks``: the tasks of a microbatch, their dependencies and their places
- ``schedule``: the order of tasks at each place, and checks of it
- ``timing``: the earliest start of each task, and the cycle of a schedule that deadlocks
- ``rules``: the schedules of the literature by their names
- ``orders``: the orders of these rules
"""
