"""The nn dialect: the operations of models, one for each row of their tables."""

from xdsl.ir import Dialect

from collir.dialects.operation import operations
from collir.layout import nn, nn_grouped, nn_selections, nn_windows
from collir.layout.nn_rows import NN

TABLES = (nn, nn_selections, nn_grouped, nn_windows)
"""The modules with the rows, in the order in which operations are listed to users."""

OPERATIONS = operations("nn", NN)
"""The operations by the name of their row."""

Nn = Dialect("nn", list(OPERATIONS.values()), [])
