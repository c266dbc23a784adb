// collopt %s
// An operation without the property it needs, and one with a property of another kind.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  "func.func"() <{sym_name = "f", function_type = (!coll.dist<f32[8] partial(sum: data)>) -> ()}> ({
  ^bb0(%x: !coll.dist<f32[8] partial(sum: data)>):
    %y = "coll.all_reduce"(%x) : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
    %z = "coll.all_reduce"(%x) <{axes = "data"}> : (!coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
    %w = "coll.all_reduce"(%x, %x) <{axes = #coll.axes<data>}> : (!coll.dist<f32[8] partial(sum: data)>, !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]>
    "func.return"() : () -> ()
  }) {coll.mesh = @m} : () -> ()
}
