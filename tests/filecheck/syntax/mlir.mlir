// RUN: collopt %s | filecheck %s --match-full-lines
// RUN: collopt %s -t mlir | filecheck %s --check-prefix=MLIR
// RUN: collopt %s -t mlir --print-op-generic | collopt -f mlir -t mlir | filecheck %s --check-prefix=MLIR

// The module need not be written, and aliases of attributes are possible.
// CHECK: machine @quad {
// CHECK-NEXT: level gpu[4] { port = 8 GB/s, latency = 3 us }
// CHECK: mesh @m on @quad { data = 2, model = 2 }
// MLIR: builtin.module {
// MLIR-NEXT: machine.machine @quad levels [#machine.level<level_name = "gpu", size = #builtin.int<4>, size_from = "", port = #machine.number<8000000000.0>, latency = #machine.number<3.0e-06>, kind = "switch">]
// MLIR-NEXT: machine.mesh @m on @quad axes [#machine.axis<axis_name = "data", size = #builtin.int<2>, factors = unit>, #machine.axis<axis_name = "model", size = #builtin.int<2>, factors = unit>]
#latency = #machine.number<3.0e-6>
machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #latency, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<2>, unit>, #machine.axis<"model", #builtin.int<2>, unit>]

// The custom and the generic syntax may stand beside each other.
// CHECK-LABEL: func @custom(%g: f32[8] partial(sum: data, model)) -> f32[8] on @m {
// CHECK-NEXT: %a = all_reduce %g over data
// CHECK-NEXT: %r = all_reduce %a over model async
// CHECK-NEXT: return %r
// MLIR-LABEL: func.func @custom(
// MLIR-NEXT: %a = coll.all_reduce %g over <data> : !coll.dist<f32[8] partial(sum: data, model)> -> !coll.dist<f32[8] partial(sum: model)>
// MLIR-NEXT: %r = coll.all_reduce %a over <model> async : !coll.dist<f32[8] partial(sum: model)> -> !coll.dist<f32[8]>
func.func @custom(%g: !coll.dist<f32[8] partial(sum: data, model)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
  %a = "coll.all_reduce"(%g) <{axes = #coll.axes<data>}>
      : (!coll.dist<f32[8] partial(sum: data, model)>) -> !coll.dist<f32[8] partial(sum: model)>
  %r = coll.all_reduce %a over <model> async : !coll.dist<f32[8] partial(sum: model)> -> !coll.dist<f32[8]>
  func.return %r : !coll.dist<f32[8]>
}

// CHECK-LABEL: func @generic(%{{0}}: f32[8]) -> f32[8] on @m {
// CHECK-NEXT: return %{{0}}
// MLIR-LABEL: func.func @generic(%{{0}}: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
// MLIR-NEXT: func.return %{{0}} : !coll.dist<f32[8]>
"func.func"() <{sym_name = "generic", function_type = (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>}> ({
^bb0(%12: !coll.dist<f32[8]>):
  "func.return"(%12) : (!coll.dist<f32[8]>) -> ()
}) {coll.mesh = @m} : () -> ()
