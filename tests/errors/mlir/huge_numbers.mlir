// collopt %s
// Numbers of hundreds of digits.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<99999999999999999999999999999999999999999999999999999999999999999999999999999999>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
}
