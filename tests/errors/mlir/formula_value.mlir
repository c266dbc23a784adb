// collopt %s
// Sizes are the values of their formulas at the defaults of the function.
machine.machine @c levels [#machine.level<"node", #builtin.int<4>, "", #machine.number<8000000000.0>, #machine.number<2.0e-05>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<4>, [#machine.factor<"node", #builtin.int<4>>]>]
func.func @value(%x: !coll.dist<f32[{4 * batch = 33}]>) attributes {coll.mesh = @m, coll.parameters = #coll.bindings<batch = 8>} {
  func.return
}
func.func @unknown(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  %y = coll.reshape %x to <{batch = 8}> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return
}
func.func @pad(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m, coll.parameters = #coll.bindings<batch = 8>} {
  %y = coll.pad %x dim 0 low 0 high {batch / 3 = 2} value <0.0> : !coll.dist<f32[8]> -> !coll.dist<f32[10]>
  func.return
}
func.func @default(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m, coll.parameters = #coll.bindings<batch = 0>} {
  func.return
}
func.func @list(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m, coll.parameters = [8]} {
  func.return
}
func.func @sorted(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m, coll.parameters = {batch = 8 : i64}} {
  func.return
}
