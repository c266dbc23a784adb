// collopt %s
// A mesh on a machine that there is not.
builtin.module {
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<8>, unit>]
}
