// collopt %s
// A function without its type, which another one calls.
"builtin.module"() ({
  "machine.machine"() <{sym_name = "box", levels = [#machine.level<"gpu", #builtin.int<2>, "", #machine.number<8000000000.0>, #machine.number<3.0e-06>, "switch">]}> : () -> ()
  "machine.mesh"() <{sym_name = "m", machine = @box, axes = [#machine.axis<"x", #builtin.int<2>, [#machine.factor<"gpu", #builtin.int<2>>]>]}> : () -> ()
  "func.func"() <{sym_name = "f", typed = (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>}> ({
  ^bb0(%x: !coll.dist<f32[8]>):
    "func.return"(%x) : (!coll.dist<f32[8]>) -> ()
  }) {coll.mesh = @m} : () -> ()
  "func.func"() <{sym_name = "g", function_type = (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>}> ({
  ^bb0(%x: !coll.dist<f32[8]>):
    %y = "coll.call"(%x) <{callee = @f}> : (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>
    "func.return"(%y) : (!coll.dist<f32[8]>) -> ()
  }) {coll.mesh = @m} : () -> ()
}) : () -> ()
