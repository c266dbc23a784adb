// collopt %s
// A tensor that is not distributed in a function on a mesh.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8]>, %y: tensor<8xf32>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[8]>
  }
}
