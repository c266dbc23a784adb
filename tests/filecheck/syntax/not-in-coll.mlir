// RUN: collopt %s -t mlir | filecheck %s
// RUN: collopt %s --verify-diagnostics --split-input-file

machine.machine @quad levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<8.0e9>, #machine.number<3.0e-6>, "switch">]
machine.mesh @m on @quad axes [#machine.axis<"data", #builtin.int<4>, unit>]

// A symbol of .coll is made of letters, digits and _.
// CHECK: func.func @"a-b"() attributes {coll.mesh = @m} {
// expected-error@+1 {{the name "a-b" cannot be written in .coll: names are letters, digits and _}}
func.func @"a-b"() attributes {coll.mesh = @m} {
  func.return
}

// -----

// Operations of other dialects are passed through in MLIR, and have no form in .coll.
// CHECK: func.func @other() {
// CHECK-NEXT: arith.constant 1 : i32
// expected-error@+1 {{the function does not name its mesh (coll.mesh = @mesh): use -t mlir}}
func.func @other() {
  %0 = arith.constant 1 : i32
  func.return
}

// -----

// Names of two regions may clash: the second is given a suffix that no value has.
// CHECK: func.func @regions() {
// CHECK: %a = arith.constant 1 : i32
// CHECK: %a_2 = arith.constant 2 : i32
// CHECK: %a_1 = arith.constant 3 : i32
// expected-error@+1 {{the function does not name its mesh (coll.mesh = @mesh): use -t mlir}}
func.func @regions() {
  scf.execute_region {
    %a = arith.constant 1 : i32
    scf.yield
  }
  scf.execute_region {
    %a = arith.constant 2 : i32
    %a_1 = arith.constant 3 : i32
    scf.yield
  }
  func.return
}
