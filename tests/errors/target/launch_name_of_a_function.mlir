// collopt %s -t jax-mesh
// A function in Python cannot have the name of this mesh.
machine.machine @c levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0>, #machine.number<0.0>, "switch">]
machine.mesh @"a-b" on @c axes [#machine.axis<"x", #builtin.int<2>, [#machine.factor<"gpu", #builtin.int<2>>]>]
