// collopt %s
// A level with more parameters than there are.
builtin.module {
  machine.machine @a levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch", #machine.number<1.0>, #builtin.int<1>, "nvlink", [], [], [], [], #machine.number<0.0>, [], unit, 4>]
}
