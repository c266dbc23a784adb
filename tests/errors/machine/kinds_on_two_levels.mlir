// collopt %s
// Two levels name kinds of devices.
builtin.module {
  machine.machine @m levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [], [], [], [], #machine.number<0.0>, [#machine.kind_children<"a", #builtin.int<1>>, #machine.kind_children<"b", #builtin.int<1>>]>, #machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [], [], [], [], #machine.number<0.0>, [#machine.kind_children<"a", #builtin.int<1>>, #machine.kind_children<"b", #builtin.int<1>>]>] kinds [#machine.kind<"a", #machine.device<[], #machine.number<16.0>, unit, unit>>, #machine.kind<"b", #machine.device<[], #machine.number<16.0>, unit, unit>>]
}
