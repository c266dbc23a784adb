"""What starts a job on the devices that a placement says: lists of hosts, meshes of frameworks."""
