// collopt %s
// In MLIR types name sub-axes only, and an axis of size 1 has none.
machine.machine @c levels [#machine.level<"node", #builtin.int<1>, "", #machine.number<8000000000.0>, #machine.number<2.0e-05>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<1>, [#machine.factor<"node", #builtin.int<1>>]>]
func.func @f(%x: !coll.dist<f32[8@data.node]>) -> !coll.dist<f32[8@data.node]> attributes {coll.mesh = @m} {
  func.return %x : !coll.dist<f32[8@data.node]>
}
