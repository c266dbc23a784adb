// RUN: collopt %s --split-input-file --verify-diagnostics

// There is no such dialect.
// expected-error@+1 {{Operation foo.bar is not registered}}
"foo.bar"() : () -> ()

// -----

// The dialect has no such operation.
func.func @f(%x: !coll.dist<f32[8]>) {
  // expected-error@+1 {{Operation coll.all_recude is not registered}}
  %y = coll.all_recude %x over <data> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return
}

// -----

// There is no such element type.
// expected-error@+1 {{Expected one of 'bf16', 'bool', 'f16', 'f32', 'f64', 'i32', 'i64', 'i8'}}
func.func @f(%x: !coll.dist<f8[8]>) {
  func.return
}

// -----

// There is no such reduction.
// expected-error@+1 {{Expected one of 'avg', 'max', 'min', 'prod', 'sum'}}
func.func @f(%x: !coll.dist<f32[8] partial(xor: data)>) {
  func.return
}

// -----

// A value that is never defined is reported where it is used.
func.func @f(%x: !coll.dist<f32[8]>) {
  // expected-error@+1 {{%z is not defined}}
  %y = coll.scale %z by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return
}

// -----

// A value is defined once.
func.func @f(%x: !coll.dist<f32[8]>) {
  // expected-error@+1 {{SSA value %x is already defined}}
  %x = coll.scale %x by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return
}
