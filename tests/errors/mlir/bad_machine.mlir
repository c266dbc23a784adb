// collopt %s
// Machines that cannot exist.
builtin.module {
  machine.machine @a levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<0.0>, #machine.number<1.0e-06>, "switch">]
  machine.machine @b levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "hypercube">]
  machine.machine @c levels [#machine.level<"gpu", #builtin.int<8>, "nodes", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.machine @d levels [#machine.level<"gpu", #builtin.int<4294967296>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.machine @e levels []
  machine.machine @f levels [#machine.level<"gpu", #builtin.int<0>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.machine @g levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<-1.0e-06>, "ring">]
  machine.machine @h levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e999>, #machine.number<1.0e-06>, "ring">]
}
