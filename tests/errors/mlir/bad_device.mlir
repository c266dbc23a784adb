// collopt %s
// Devices that cannot exist.
builtin.module {
  machine.machine @a levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">] device <[#machine.rate<"f32", #machine.number<0.0>>], #machine.number<1.0>, unit>
  machine.machine @b levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">] device <[], #machine.number<-1.0>, unit>
  machine.machine @c levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">] device <[#machine.rate<"f32", #machine.number<1.0>>, #machine.rate<"f32", #machine.number<2.0>>], #machine.number<1.0>, #machine.number<1.0>>
  machine.machine @d levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">] device <[], #machine.number<1.0>, #machine.number<0.0>>
}
