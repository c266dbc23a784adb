// collopt %s
// The name of an axis that .coll cannot write.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"da ta", #builtin.int<4>, unit>]
}
