// RUN: collopt %s --split-input-file --verify-diagnostics -t mlir --print-op-generic | filecheck %s
// RUN: collopt %s --split-input-file --verify-diagnostics | filecheck %s --check-prefix=COLL --match-full-lines

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// The attributes are the axes of a step and integers in order, both within < and >.
// CHECK: "coll.slice"(%x) <{axes = #coll.axes<model, data>, dim = 0 : i64}>
// CHECK: "coll.split"({{.*}}) <{dim = 0 : i64, sizes = #coll.sizes<4, 2>}>
// CHECK: "coll.transpose"({{.*}}) <{order = #coll.sizes<1, 0>}>
// COLL-LABEL: func @lists(%x: f32[8]) -> f32[2, 4@(model, data)] on @m {
// COLL-NEXT: %a = slice %x over model, data dim 0
// COLL-NEXT: %b = split %a dim 0 into [4, 2]
// COLL-NEXT: %r = transpose %b order [1, 0]
func.func @lists(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[2, 4@model@data]> attributes {coll.mesh = @m} {
  %a = coll.slice %x over <model, data> dim 0 : !coll.dist<f32[8]> -> !coll.dist<f32[8@model@data]>
  %b = coll.split %a dim 0 into <4, 2> : !coll.dist<f32[8@model@data]> -> !coll.dist<f32[4@model@data, 2]>
  %r = coll.transpose %b order <1, 0> : !coll.dist<f32[4@model@data, 2]> -> !coll.dist<f32[2, 4@model@data]>
  func.return %r : !coll.dist<f32[2, 4@model@data]>
}

// -----

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// A list of axes may be empty and a size negative in the text; the verifier refuses what uses them.
func.func @verified(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{all_reduce needs at least one sub-axis}}
  %a = coll.all_reduce %x over <> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  // expected-error@+1 {{reshape to sizes [-2, -4] is not possible: sizes are at least 1}}
  %b = coll.reshape %x to <-2, -4> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  // expected-error@+1 {{split makes two dimensions out of one, not 3}}
  %c = coll.split %x dim 0 into <2, 2, 2> : !coll.dist<f32[8]> -> !coll.dist<f32[2, 2, 2]>
  func.return
}

// -----

// An axis is no string.
func.func @string(%x: !coll.dist<f32[8]>) {
  // expected-error@+1 {{identifier expected}}
  %a = coll.all_reduce %x over <"data"> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
  func.return
}

// -----

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// A place is a coordinate on each sub-axis; coordinate 0 is root in a type.
// CHECK: "coll.keep"(%x) <{place = #coll.place<data = 0, model = 1>}> : (!coll.dist<f32[8]>) -> !coll.dist<f32[8] root(data) at(model = 1)>
// COLL-LABEL: func @kept(%x: f32[8]) -> f32[8] root(data) at(model = 1) on @m {
// COLL-NEXT: %r = keep %x at data = 0, model = 1
func.func @kept(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8] root(data) at(model = 1)> attributes {coll.mesh = @m} {
  %r = coll.keep %x at <model = 1, data = 0> : !coll.dist<f32[8]> -> !coll.dist<f32[8] at(data = 0, model = 1)>
  func.return %r : !coll.dist<f32[8] root(data) at(model = 1)>
}

// -----

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// A coordinate that is not there is no place.
func.func @nowhere(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{model has no coordinate 2: its coordinates are 0 to 1}}
  %r = coll.keep %x at <model = 2> : !coll.dist<f32[8]> -> !coll.dist<f32[8] at(model = 2)>
  func.return
}
