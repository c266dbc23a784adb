// collopt %s
// Ports, shapes and links that cannot be, or that do not go together.
builtin.module {
  machine.machine @a levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [#machine.number<1.0e9>]>]
  machine.machine @b levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [#machine.number<1.0e8>, #machine.number<1.0e8>]>]
  machine.machine @c levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring", #machine.number<1.0>, #builtin.int<1>, "", [], [#builtin.int<2>, #builtin.int<2>]>]
  machine.machine @d levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "links">]
  machine.machine @e levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [], [], [[#builtin.int<0>, #builtin.int<1>], [#builtin.int<1>, #builtin.int<0>]]>]
}
