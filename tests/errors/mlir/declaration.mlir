// collopt %s
// A function without a body.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func private @f(!coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m}
}
