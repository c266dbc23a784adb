from typing import Any

from torch import nn as nn

def __getattr__(name: str) -> Any: ...
