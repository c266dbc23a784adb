// collopt %s
// A level names a kind that the machine does not have.
builtin.module {
  machine.machine @m levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [], [], [], [], #machine.number<0.0>, [#machine.kind_children<"a", #builtin.int<1>>, #machine.kind_children<"b", #builtin.int<1>>]>] kinds [#machine.kind<"a", #machine.device<[], #machine.number<16.0>, unit, unit>>]
}
