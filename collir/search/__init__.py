"""Exact search of trees: one problem, any order, any division of work, any engine."""
