// RUN: collopt %s --verify-diagnostics

machine.machine @c levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<8.0e9>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<8>, unit>]

// The verifier goes by the same rules as the reader of .coll, and says the same.
func.func @state(%x: !coll.dist<f32[64@data]>) -> !coll.dist<f32[64]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{%x is sharded over data here; all_reduce needs it partial: nothing is left to reduce}}
  %y = coll.all_reduce %x over <data> : !coll.dist<f32[64@data]> -> !coll.dist<f32[64]>
  func.return %y : !coll.dist<f32[64]>
}

// In MLIR all result types are written, and checked.
func.func @result(%x: !coll.dist<f32[64@data]>) -> !coll.dist<f32[64]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{the result is f32[64], not f32[32]}}
  %y = coll.all_gather %x over <data> dim 0 : !coll.dist<f32[64@data]> -> !coll.dist<f32[32]>
  // expected-error@+1 {{%y is f32[32], but the function promises f32[64]}}
  func.return %y : !coll.dist<f32[32]>
}

// What is returned is what the function promises.
func.func @promised(%x: !coll.dist<f32[64] root(data)>) -> !coll.dist<f32[64]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{%x is f32[64] root(data), but the function promises f32[64]: broadcast it over data before returning}}
  func.return %x : !coll.dist<f32[64] root(data)>
}

// A step over no sub-axis does nothing.
func.func @no_axes(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{all_reduce needs at least one sub-axis}}
  %y = coll.all_reduce %x over <> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return %y : !coll.dist<f32[8]>
}

// A value is used behind its definition only.
func.func @later(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{%y is used before it is defined}}
  %z = coll.scale %y by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  // expected-note@+1 {{it is defined here}}
  %y = coll.scale %x by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return %z : !coll.dist<f32[8]>
}
