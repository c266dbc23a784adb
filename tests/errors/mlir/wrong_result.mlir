// collopt %s
// A result of another type than the operation has.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.all_reduce %x over <data> : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[9]>
    func.return %x : !coll.dist<f32[8] partial(sum: data)>
  }
}
