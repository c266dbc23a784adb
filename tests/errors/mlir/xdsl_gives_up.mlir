// collopt %s
// A text that xDSL's parser fails on, not with a diagnostic of its own.
builtin.module {
  machine.machine @box from #machine.reference<"box", [], ""> levels []
}
