"""Names of values: one for each, also where several have the same hint."""

from support.semantics.checks import functions_of

import collir
from collir.ir.names import set_name, unique_names

PROGRAM = """\
machine @c { level gpu[2] { port = 1 GB/s, latency = 1 us } }
mesh @m on @c { x = gpu:2 }
func @f(%a: f32[4]) -> f32[4] on @m {
  %b = scale %a by 2
  %c = scale %b by 3
  %d = scale %c by 4
  %a_2 = scale %d by 5
  return %a_2
}
"""


def test_values_with_one_hint_have_names_of_their_own() -> None:
    (function,) = functions_of(collir.parse(PROGRAM))
    values = [*function.args, *(result for op in function.body.ops for result in op.results)]
    for value in values[:4]:
        set_name(value, "a")
    names = unique_names(function)
    assert [names[value] for value in values] == ["a", "a_1", "a_3", "a_4", "a_2"]
