// RUN: collopt %s -t mlir | filecheck %s
// RUN: collopt %s | filecheck %s --check-prefix=COLL --match-full-lines

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<4>, unit>]

// Names with $ or - are possible in MLIR only, and become numbers.
// CHECK-LABEL: func.func @letters(
// CHECK-SAME: %{{0}}: !coll.dist<f32[8]>, %{{1}}: !coll.dist<f32[8]>, %a_1: !coll.dist<f32[8]> {coll.name = "a_1"}) attributes
// COLL-LABEL: func @letters(%{{0}}: f32[8], %{{1}}: f32[8], %a_1: f32[8]) on @m {
func.func @letters(%a$b: !coll.dist<f32[8]>, %a-b: !coll.dist<f32[8]>, %a_1: !coll.dist<f32[8]>) attributes {coll.mesh = @m} {
  func.return
}
