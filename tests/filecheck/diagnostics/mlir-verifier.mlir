// RUN: collopt %s --split-input-file --verify-diagnostics

machine.machine @c levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<8.0e9>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<8>, unit>]

// The verifier goes by the same rules as the reader of .coll, and says the same.
// expected-note@+1 {{@state is first defined here}}
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

// A type that cannot exist on the mesh is an error of the signature.
// expected-error@+1 {{dimension 0 of size 6 does not divide into the 8 shards of data}}
func.func @signature(%x: !coll.dist<f32[6@data]>) -> !coll.dist<f32[6@data]> attributes {coll.mesh = @m} {
  func.return %x : !coll.dist<f32[6@data]>
}

// A function with distributed tensors names its mesh, and the mesh is there.
// expected-error@+1 {{the function does not name its mesh (coll.mesh = @mesh)}}
func.func @no_mesh(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> {
  func.return %x : !coll.dist<f32[8]>
}
// expected-error@+1 {{there is no mesh @n}}
func.func @other_mesh(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @n} {
  func.return %x : !coll.dist<f32[8]>
}

// Where one type of a signature is a distributed tensor, all are.
// expected-error@+1 {{expected a distributed tensor (!coll.dist), not tensor<8xf32>}}
func.func @both(%x: tensor<8xf32>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  func.return %x : tensor<8xf32>
}

// Of two functions of one name the second is refused.
// expected-error@+1 {{@state is defined twice}}
func.func @state(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  func.return %x : !coll.dist<f32[8]>
}
