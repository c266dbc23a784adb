// collopt %s
// A level without a kind.
builtin.module {
  machine.machine @a levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>>]
}
