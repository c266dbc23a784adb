// collopt %s
// A name that .coll cannot write.
builtin.module {
  machine.machine @"my box" levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
}
