"""Whether two functions compute the same: by proof, or by running both on the same inputs."""
