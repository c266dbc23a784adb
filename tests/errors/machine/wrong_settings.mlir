// collopt %s
// Settings in MLIR that cannot be, and too many of them.
builtin.module {
  machine.machine @a levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<0.5>>]
  machine.machine @b levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<0>>]
  machine.machine @c levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "copper">]
  machine.machine @d levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<2>>]
  machine.machine @e levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch">] device <[], unit, unit, #machine.number<0.0>>
}
