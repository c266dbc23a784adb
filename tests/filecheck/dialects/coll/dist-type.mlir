// RUN: collopt %s --split-input-file --verify-diagnostics -t mlir | filecheck %s
// RUN: collopt %s --split-input-file --verify-diagnostics -t mlir | collopt -f mlir | filecheck %s --check-prefix=COLL --match-full-lines

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// A type has an element type, a shape, the shards of each dimension, what is partial and what is at root.
// CHECK-LABEL: func.func @states(
// CHECK-SAME: %x: !coll.dist<f32[8@model@data, 3]> {coll.name = "x"}, %g: !coll.dist<i64[] partial(max: data) root(model)> {coll.name = "g"})
// COLL-LABEL: func @states(%x: f32[8@(model, data), 3], %g: i64[] partial(max: data) root(model)) on @m {
func.func @states(%x: !coll.dist<f32[8@model@data, 3]>, %g: !coll.dist<i64[] partial(max: data) root(model)>)
    attributes {coll.mesh = @m} {
  func.return
}

// The order of shards is kept; what is partial or at root is a set, and printed in one order.
// CHECK-LABEL: func.func @sets(
// CHECK-SAME: %g: !coll.dist<bf16[2] partial(sum: data, model)> {coll.name = "g"}, %x: !coll.dist<i8[2] root(data, model)> {coll.name = "x"})
// COLL-LABEL: func @sets(%g: bf16[2] partial(sum: data, model), %x: i8[2] root(data, model)) on @m {
func.func @sets(%g: !coll.dist<bf16[2] partial(sum: model, data)>, %x: !coll.dist<i8[2] root(model, data)>)
    attributes {coll.mesh = @m} {
  func.return
}

// -----

// A set names each sub-axis once.
// expected-error@+1 {{a sub-axis is named twice}}
func.func private @twice(!coll.dist<f32[8] partial(sum: data, data)>)

// -----

// Sizes are not negative.
// expected-error@+1 {{Expected integer literal}}
func.func private @negative(!coll.dist<f32[-8]>)

// -----

// There is no such element type.
// expected-error@+1 {{Expected one of 'bf16', 'bool', 'f16', 'f32', 'f64', 'i32', 'i64', 'i8'}}
func.func private @unknown(!coll.dist<f8[8]>)

// -----

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// What the mesh does not have is found by the verifier.
// expected-error@+1 {{axis 'pipeline' is not in mesh @m (its axes are data, model)}}
func.func @unknown(%x: !coll.dist<f32[8@pipeline]>) attributes {coll.mesh = @m} {
  func.return
}
// expected-error@+1 {{sub-axis data is used twice: a value has one state on each sub-axis}}
func.func @states(%x: !coll.dist<f32[8@data] root(data)>) attributes {coll.mesh = @m} {
  func.return
}
