#!/bin/sh
# What mpiexec calls in the place of ssh: a command on a rank's "host", which is a name space.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
# Processes share the CPU quota of a rank, where there are quotas (unlike.py).
if [ -n "$QUOTAS" ]; then echo 0 > "$QUOTAS/$host/cgroup.procs"; fi
exec ip netns exec "$host" sh -c "$*"
