// collopt %s
// A string without its end.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu, #builtin.int<9>
}
