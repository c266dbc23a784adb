// collopt %s
// Meshes that do not fit their machine.
builtin.module {
  machine.machine @box levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">, #machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @a on @box axes [#machine.axis<"data", #builtin.int<9>, unit>]
  machine.mesh @b on @box axes [#machine.axis<"data", #builtin.int<8>, [#machine.factor<"node", #builtin.int<2>>]>]
  machine.mesh @c on @box axes []
  machine.mesh @d on @box axes [#machine.axis<"data", #builtin.int<0>, unit>]
}
