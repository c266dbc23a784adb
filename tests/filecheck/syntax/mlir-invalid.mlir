// RUN: collopt %s --split-input-file --verify-diagnostics

// A value that is used and not defined is reported where it is used.
func.func @undefined() {
  // expected-error@+1 {{%x is not defined}}
  func.return %x : !coll.dist<f32[8]>
}

// -----

// Operations that no dialect has are errors.
func.func @unregistered() {
  // expected-error@+1 {{Operation coll.all_sum is not registered}}
  "coll.all_sum"() : () -> ()
  func.return
}

// -----

machine.machine @pair levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
machine.mesh @m on @pair axes [#machine.axis<"data", #builtin.int<2>, unit>]

// A function on a mesh is one straight block of steps, each on values from before it.
// expected-error@+1 {{a function without a body has no meaning here}}
func.func private @declared(!coll.dist<f32[8]>) attributes {coll.mesh = @m}
// expected-error@+1 {{a function on a mesh has one block: it is a straight program}}
func.func @blocks(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  cf.br ^bb1
^bb1:
  func.return
}
func.func @order(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{%b is used before it is defined}}
  %a = coll.scale %b by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  // expected-note@+1 {{it is defined here}}
  %b = coll.scale %x by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return
}

// -----

// The parser stops at its first error.
func.func @first() {
  // expected-error@+1 {{Operation func.retrn is not registered}}
  "func.retrn"() : () -> ()
}
func.func @second() {
  "func.retrn"() : () -> ()
}
