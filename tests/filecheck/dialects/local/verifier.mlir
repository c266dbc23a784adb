// RUN: collopt %s --split-input-file --verify-diagnostics

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<4>, unit>]

// A computation has the arguments of its row, of the right kind, and as many operands.
"local.func"() <{sym_name = "arguments", mesh = @m, places = [#coll.place<>, #coll.place<>], returned = 1 : i64}> ({
^bb0(%x: !local.buffer<f32[8]>, %y: !local.buffer<f32[8]>):
  // expected-error@+1 {{sum: property 'dims' expected}}
  "local.compute"(%x, %y) <{kernel = "sum", arguments = {}, operandSegmentSizes = array<i32: 1, 1>}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> ()
  // expected-error@+1 {{sum: "all" should be of base attribute coll.sizes}}
  "local.compute"(%x, %y) <{kernel = "sum", arguments = {dims = "all"}, operandSegmentSizes = array<i32: 1, 1>}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> ()
  // expected-error@+1 {{neg takes 1 operand, not 2}}
  "local.compute"(%x, %y) <{kernel = "neg", arguments = {}, operandSegmentSizes = array<i32: 2, 0>}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> ()
  // expected-error@+1 {{there is no operation all_reduce that sends nothing}}
  "local.compute"(%x, %y) <{kernel = "all_reduce", arguments = {}, operandSegmentSizes = array<i32: 1, 1>}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> ()
  // expected-error@+1 {{mask says for which reduction it is}}
  "local.compute"(%x, %y) <{kernel = "mask", arguments = {}, starts = [#local.number<data>], operandSegmentSizes = array<i32: 1, 1>}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> ()
  // expected-error@+1 {{@m has no sub-axis model}}
  "local.compute"(%x, %y) <{kernel = "mask", arguments = {reduction = "sum"}, starts = [#local.number<model>], operandSegmentSizes = array<i32: 1, 1>}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> ()
}) : () -> ()

// A collective has a root in its group and an algorithm that is one of it.
"local.func"() <{sym_name = "starts", mesh = @m, places = [#coll.place<>, #coll.place<>], returned = 1 : i64}> ({
^bb0(%x: !local.buffer<f32[8]>, %y: !local.buffer<f32[8]>):
  // expected-error@+1 {{a group of 4 ranks has no root 4}}
  %a = "local.start"(%x, %y) <{kind = "broadcast", axes = #coll.axes<data>, root = 4 : i64}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> !local.token
  local.wait %a
  // expected-error@+1 {{all_reduce has no algorithm 'rings': use ring}}
  %b = "local.start"(%x, %y) <{kind = "all_reduce", axes = #coll.axes<data>, reduction = "sum", algorithm = "rings"}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> !local.token
  local.wait %b
}) : () -> ()

// Values are used behind their definition, in bodies as well, and what an at has begun is waited for.
"local.func"() <{sym_name = "order", mesh = @m, places = [#coll.place<>], returned = 0 : i64}> ({
^bb0(%x: !local.buffer<f32[8]>):
  // expected-error@+1 {{an at is for some of the ranks: name a coordinate of theirs}}
  "local.at"() <{place = #coll.place<>}> ({
    // expected-error@+1 {{%y is used before it is defined}}
    local.copy %x to %y : !local.buffer<f32[8]> to !local.buffer<f32[8]>
    local.yield
  }) : () -> ()
  %y = local.alloc : !local.buffer<f32[8]>
  // expected-error@+1 {{what this at has begun has no wait, or several}}
  %t = "local.at"() <{place = #coll.place<data = 1>}> ({
    %a = "local.start"(%x, %y) <{kind = "all_reduce", axes = #coll.axes<data>, reduction = "sum"}> : (!local.buffer<f32[8]>, !local.buffer<f32[8]>) -> !local.token
    local.yield %a : !local.token
  }) : () -> !local.token
}) : () -> ()
