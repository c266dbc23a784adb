// RUN: collopt %s --split-input-file --verify-diagnostics

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// The type of a result is the one that the rule of the operation gives.
func.func @result(%g: !coll.dist<f32[8] partial(sum: data)>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{the result is f32[8], not f32[4]}}
  %a = coll.all_reduce %g over <data> : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[4]>
  // expected-error@+1 {{the result is f32[8@data], not f32[8@model]}}
  %b = coll.reduce_scatter %g over <data> dim 0 : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[8@model]>
  func.return
}

// A wrong step has its note at the definition of the operand.
func.func @state(%x: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  // expected-note@+1 {{%a is sharded over data from here}}
  %a = coll.slice %x over <data> dim 0 : !coll.dist<f32[8]> -> !coll.dist<f32[8@data]>
  // expected-error@+1 {{%a is sharded over data here; broadcast needs it at root there: gather it first}}
  %b = coll.broadcast %a over <data> : !coll.dist<f32[8@data]> -> !coll.dist<f32[8]>
  func.return
}

// What is returned has the type that the function promises.
func.func @returned(%x: !coll.dist<f32[8@data]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  // expected-error@+1 {{%x is f32[8@data], but the function promises f32[8]: all_gather it over data before returning}}
  func.return %x : !coll.dist<f32[8@data]>
}

// -----

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
  machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// An operand that is no distributed tensor is refused.
func.func @tensor(%x: tensor<8xf32>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{operand 'input' at position 0 does not verify: tensor<8xf32> should be of base attribute coll.dist}}
  %a = "coll.all_reduce"(%x) <{axes = #coll.axes<data>}> : (tensor<8xf32>) -> !coll.dist<f32[8]>
  func.return
}

// A result that is none is refused too.
func.func @result(%x: !coll.dist<f32[8] partial(sum: data)>) attributes {coll.mesh = @m} {
  // expected-error@+1 {{result 'result' at position 0 does not verify: tensor<8xf32> should be of base attribute coll.dist}}
  %a = "coll.all_reduce"(%x) <{axes = #coll.axes<data>}> : (!coll.dist<f32[8] partial(sum: data)>) -> tensor<8xf32>
  func.return
}
