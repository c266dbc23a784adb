// collopt %s
// Settings of attributes have names: each once, and those without a default all.
builtin.module {
  machine.machine @box levels [#machine.level<level_name = "gpu", size = #builtin.int<2>, size_from = "", kind = "switch">]
}
