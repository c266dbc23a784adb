// collopt %s
// Attributes of the wrong kind.
builtin.module {
  machine.mesh @m on @box axes [#machine.axis<"data", 4, unit>]
}
