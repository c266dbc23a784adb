// collopt %s
// Arguments, and results, have distinct names of letters, digits and _.
machine.machine @c levels [#machine.level<"node", #builtin.int<4>, "", #machine.number<8000000000.0>, #machine.number<2.0e-05>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<4>, [#machine.factor<"node", #builtin.int<4>>]>]
func.func @twice(%x: !coll.dist<f32[8]> {coll.name = "x"}, %y: !coll.dist<f32[8]> {coll.name = "x"}) attributes {coll.mesh = @m} {
  func.return
}
func.func @results(%x: !coll.dist<f32[8]>) -> (!coll.dist<f32[8]> {coll.name = "r"}, !coll.dist<f32[8]> {coll.name = "r"}) attributes {coll.mesh = @m} {
  func.return %x, %x : !coll.dist<f32[8]>, !coll.dist<f32[8]>
}
func.func @form(%x: !coll.dist<f32[8]> {coll.name = "a b"}) attributes {coll.mesh = @m} {
  func.return
}
func.func @kind(%x: !coll.dist<f32[8]> {coll.name = 1 : i64}) attributes {coll.mesh = @m} {
  func.return
}
