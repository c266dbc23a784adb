// collopt %s
// The name of a parameter that .coll cannot write.
builtin.module {
  machine.machine @box parameters [#machine.parameter<"a b", #builtin.int<4>>] levels [#machine.level<"gpu", #builtin.int<4>, "a b", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
}
