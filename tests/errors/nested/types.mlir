// collopt %s
// In MLIR, the types of a loop, of its body and of a call are written, and checked.
machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8000000000.0>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<4>, [#machine.factor<"gpu", #builtin.int<4>>]>]
func.func @arguments(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  %h = coll.repeat 6 carry(%x : !coll.dist<f32[8]>) -> (!coll.dist<f32[8]>) {
  ^bb0(%c: !coll.dist<f32[4]>):
    coll.yield %c : !coll.dist<f32[4]>
  }
  func.return %h : !coll.dist<f32[8]>
}
func.func @results(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[5, 8]> attributes {coll.mesh = @m} {
  %h, %s = coll.repeat 6 carry(%x : !coll.dist<f32[8]>) -> (!coll.dist<f32[8]>, !coll.dist<f32[5, 8]>) {
  ^bb0(%c: !coll.dist<f32[8]>):
    coll.yield %c, %c : !coll.dist<f32[8]>, !coll.dist<f32[8]>
  }
  func.return %s : !coll.dist<f32[5, 8]>
}
func.func @carries(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  %h = coll.repeat 6 carry(%x : !coll.dist<f32[8]>) -> (!coll.dist<f32[8]>) {
  ^bb0(%c: !coll.dist<f32[8]>):
    %d = coll.slice %c over <data.gpu> dim 0 : !coll.dist<f32[8]> -> !coll.dist<f32[8@data.gpu]>
    coll.yield %d : !coll.dist<f32[8@data.gpu]>
  }
  func.return %h : !coll.dist<f32[8]>
}
func.func @slices(%x: !coll.dist<f32[5, 8]>) -> !coll.dist<f32[6, 8]> attributes {coll.mesh = @m} {
  %h = coll.repeat 6 slice(%x : !coll.dist<f32[5, 8]>) -> (!coll.dist<f32[6, 8]>) {
  ^bb0(%c: !coll.dist<f32[8]>):
    coll.yield %c : !coll.dist<f32[8]>
  }
  func.return %h : !coll.dist<f32[6, 8]>
}
func.func @calls(%x: !coll.dist<f32[8]>, %w: !coll.dist<f32[5, 8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  %a = coll.call @slices(%x) : (!coll.dist<f32[8]>) -> !coll.dist<f32[6, 8]>
  %b = coll.call @slices(%w) : (!coll.dist<f32[5, 8]>) -> !coll.dist<f32[8]>
  %c = coll.call @none(%x) : (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>
  func.return %c : !coll.dist<f32[8]>
}
