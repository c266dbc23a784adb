#!/bin/sh
# What mpiexec calls in the place of ssh: a command on a rank's "host", which is a name space.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" sh -c "$*"
