// collopt %s
// Roles that there are not, and too few of them.
machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e+09>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<4>, [#machine.factor<"gpu", #builtin.int<4>>]>]
func.func @f(%w: !coll.dist<f32[8]> {coll.role = "weight"}) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  func.return %w : !coll.dist<f32[8]>
}
func.func @g(%w: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  %x = nn.exp %w {coll.role = ["state", "state"]} : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  %y = nn.exp %x {coll.role = 3 : i32} : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return %y : !coll.dist<f32[8]>
}
