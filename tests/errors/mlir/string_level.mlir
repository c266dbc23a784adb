// collopt %s
// The name of a level that .coll cannot write.
builtin.module {
  machine.machine @box levels [#machine.level<"g p u", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
}
