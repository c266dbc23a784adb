// RUN: collopt %s --split-input-file --verify-diagnostics

// The verifier refuses machines that cannot exist: their levels, devices and parameters.
// expected-error@+1 {{'hypercube' is not a kind of link}}
machine.machine @kind levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-6>, "hypercube">]
// expected-error@+1 {{machine @levels has no levels}}
machine.machine @levels levels []
// expected-error@+1 {{level 'gpu' does not have the size of parameter 'gpus'}}
machine.machine @parameter parameters [#machine.parameter<"gpus", #builtin.int<4>>] levels [#machine.level<"gpu", #builtin.int<8>, "gpus", #machine.number<1.0e9>, #machine.number<1.0e-6>, "switch">]
// expected-error@+1 {{the port of level 'gpu' must be the largest of its ports}}
machine.machine @ports levels [#machine.level<"gpu", #builtin.int<1>, "", #machine.number<1.0e9>, #machine.number<1.0e-6>, "switch", #machine.number<1.0>, #builtin.int<1>, "", [#machine.number<2.0e9>]>]
// expected-error@+1 {{level 'gpu' needs either a matrix of links or a kind}}
machine.machine @links levels [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<1.0e9>, #machine.number<1.0e-6>, "links">]
// expected-error@+1 {{the memory size must be positive and finite, not 0}}
machine.machine @memory levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-6>, "ring">] device <[], #machine.number<0.0>, unit>
// expected-error@+1 {{property 'levels' expected}}
"machine.machine"() <{sym_name = "property"}> : () -> ()

// -----

machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-6>, "ring">]

// A mesh has to fit its machine, in MLIR as well.
// expected-error@+1 {{the axes of mesh @large multiply to 8, but machine @box has 4 devices}}
machine.mesh @large on @box axes [#machine.axis<"data", #builtin.int<8>, unit>]
// expected-error@+1 {{the factors of mesh @factors on level 'gpu' multiply to 2, but the level has 4 children}}
machine.mesh @factors on @box axes [#machine.axis<"data", #builtin.int<2>, [#machine.factor<"gpu", #builtin.int<2>>]>]
// expected-error@+1 {{there is no machine @bax}}
machine.mesh @unknown on @bax axes [#machine.axis<"data", #builtin.int<4>, unit>]

// -----

// A level in MLIR has at least a name, a size, a parameter, a port, a latency and a kind.
// expected-error@+1 {{machine.level has another number of parameters}}
machine.machine @few levels [#machine.level<"gpu", #builtin.int<8>, "", #machine.number<1.0e9>, #machine.number<1.0e-6>>]
