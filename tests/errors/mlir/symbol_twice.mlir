// collopt %s
// A symbol that is defined twice.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
}
