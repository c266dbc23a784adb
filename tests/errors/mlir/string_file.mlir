// collopt %s
// The name of a file that .coll cannot write.
builtin.module {
  machine.machine @box from <"box", [], "a\"b"> levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
}
