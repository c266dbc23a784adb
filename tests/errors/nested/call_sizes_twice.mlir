// collopt %s
// In MLIR, a call names a parameter twice.
machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8000000000.0>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<4>, [#machine.factor<"gpu", #builtin.int<4>>]>]
func.func @half(%x: !coll.dist<f32[{2 * batch = 6}]>) -> !coll.dist<f32[{batch = 3}]> attributes {coll.mesh = @m, coll.parameters = #coll.bindings<batch = 3>} {
  %y = coll.pad %x dim 0 low 0 high {-batch = -3} value <0.0> : !coll.dist<f32[{2 * batch = 6}]> -> !coll.dist<f32[{batch = 3}]>
  func.return %y : !coll.dist<f32[{batch = 3}]>
}
func.func @twice(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[4]> attributes {coll.mesh = @m} {
  %y = coll.call @half at <batch = 4, batch = 4>(%x) : (!coll.dist<f32[8]>) -> !coll.dist<f32[4]>
  func.return %y : !coll.dist<f32[4]>
}
