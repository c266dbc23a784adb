"""Training steps cut into stages: the tasks of a pipeline, and the program around them.

A loop over microbatches that contains the layers, forward and backward, becomes a loop with a
schedule. ``stacks`` finds what has a dimension of layers and cuts it, ``assignment`` says which
task does what, ``outlining`` makes functions of tasks, and ``around`` gives the rest of the
function its places.
"""
