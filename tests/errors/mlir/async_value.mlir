// collopt %s
// async is there or not; it has no value.
builtin.module {
  machine.machine @box levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<8000000000.0>, #machine.number<2.0e-05>, "switch">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<2>, [#machine.factor<"node", #builtin.int<2>>]>]
  "func.func"() <{sym_name = "f", function_type = (!coll.dist<f32[8] partial(sum: data.node)>) -> !coll.dist<f32[8]>}> ({
  ^bb0(%x: !coll.dist<f32[8] partial(sum: data.node)>):
    %y = "coll.all_reduce"(%x) <{axes = #coll.axes<data.node>, async = false}> : (!coll.dist<f32[8] partial(sum: data.node)>) -> !coll.dist<f32[8]>
    "func.return"(%y) : (!coll.dist<f32[8]>) -> ()
  }) {coll.mesh = @m} : () -> ()
}
