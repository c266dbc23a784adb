// collopt %s
// A setting that is given twice.
builtin.module {
  machine.mesh @m on @box axes [#machine.axis<axis_name = "data", size = #builtin.int<2>, size = #builtin.int<2>, factors = unit>]
}
