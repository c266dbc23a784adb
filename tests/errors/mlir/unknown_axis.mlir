// collopt %s
// A step over a sub-axis that the mesh does not have.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.all_reduce %x over <data.gpu> : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[8]>
    func.return %y : !coll.dist<f32[8]>
  }
}
