"""DistIR's simulation of MLPs (arXiv 2111.05426), figure by figure, in closed form per stage.

The accounting is that of microsoft/dist-ir at 7cfa1b0: its table of costs, its programs and its
rules of memory, so that its published grids can be compared. README.md lists what of it
differs from collir's own models. Equal replicas are computed once, and a task's time and memory
once for each kind of stage, whatever the number of devices, layers and microbatches.
"""

from distir.configuration import MODELS, Configuration, refusal
from distir.evaluation import Results, evaluate
from distir.grid import grid

__all__ = ["MODELS", "Configuration", "Results", "evaluate", "grid", "refusal"]
