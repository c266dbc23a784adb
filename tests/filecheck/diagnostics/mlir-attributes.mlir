// RUN: collopt %s --split-input-file --verify-diagnostics

// In a set of sub-axes each is named once.
// expected-error@+1 {{a sub-axis is named twice}}
func.func @f(%x: !coll.dist<f32[8] root(data, data)>) {
  func.return
}

// -----

// A mesh is on a machine of the module.
// expected-error@+1 {{there is no machine @c}}
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<8>, unit>]

// -----

// In the generic syntax a property may be missing, or be of another kind.
machine.machine @c levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<8.0e9>, #machine.number<3.0e-06>, "switch">]
machine.mesh @m on @c axes [#machine.axis<"data", #builtin.int<8>, unit>]
func.func @f(%x: !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{property 'axes' expected in operation 'coll.all_reduce'}}
  %a = "coll.all_reduce"(%x) : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
  // expected-error@+1 {{"data" should be of base attribute coll.axes}}
  %b = "coll.all_reduce"(%x) <{axes = "data"}> : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
  func.return %b : !coll.dist<f32[8]>
}
