"""Training steps cut into stages: the tasks of a pipeline, and the program around them.

A loop over microbatches that contains the layers, forward and backward, becomes a loop with a
schedule. ``stacks`` finds and cuts values with a dimension of layers, ``assignment`` gives each
step a task, ``outlining`` makes functions of tasks, and ``around`` gives the rest of the function
its places.
"""
