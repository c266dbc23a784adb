// RUN: collopt %s --split-input-file --verify-diagnostics

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// An operation has all its properties, and of the right kind.
func.func @properties(%g: !coll.dist<f32[8] partial(sum: data)>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{property 'axes' expected}}
  %a = "coll.all_reduce"(%g) : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
  // expected-error@+1 {{"data" should be of base attribute coll.axes}}
  %b = "coll.all_reduce"(%g) <{axes = "data"}> : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
  // expected-error@+1 {{true should be of base attribute unit}}
  %c = "coll.all_reduce"(%g) <{axes = #coll.axes<data>, async = true}>
      : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
  func.return
}

// A name may be a word that means nothing.
func.func @names(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{'f8' is not a dtype: use f16, bf16, f32, f64, i8, i32, i64}}
  %a = coll.cast %x to "f8" : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  // expected-error@+1 {{'xor' is not a reduction: use sum, prod, max, min, avg}}
  %b = coll.mask %x over <data> op "xor" : !coll.dist<f32[8]> -> !coll.dist<f32[8] partial(sum: data)>
  // expected-error@+1 {{concat needs at least one operand}}
  %c = coll.concat dim 0 : -> !coll.dist<f32[8]>
  func.return
}

// -----

// A function on distributed tensors names its mesh.
// expected-error@+1 {{the function does not name its mesh (coll.mesh = @mesh)}}
func.func @none(%x: !coll.dist<f32[8]>) {
  func.return
}

// The mesh has to be there.
// expected-error@+1 {{there is no mesh @m}}
func.func @unknown(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  func.return
}
