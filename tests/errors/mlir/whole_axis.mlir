// collopt %s
// An axis of several parts is written by its parts.
builtin.module {
  machine.machine @box levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch">, #machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "switch">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<8>, [#machine.factor<"node", #builtin.int<2>>, #machine.factor<"gpu", #builtin.int<4>>]>]
  func.func @f(%g: !coll.dist<f32[16] partial(sum: data)>) -> !coll.dist<f32[16] partial(sum: data)> attributes {coll.mesh = @m} {
    func.return %g : !coll.dist<f32[16] partial(sum: data)>
  }
}
