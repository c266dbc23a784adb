// RUN: collopt %s --verify-diagnostics

machine.machine @c levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<8.0e9>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<8>, unit>]

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
// expected-note@+1 {{@twice is first defined here}}
func.func @twice(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  func.return %x : !coll.dist<f32[8]>
}
// expected-error@+1 {{@twice is defined twice}}
func.func @twice(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  func.return %x : !coll.dist<f32[8]>
}
