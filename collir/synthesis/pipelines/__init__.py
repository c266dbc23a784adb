"""Schedules of pipelines that are searched for given times and memory."""
