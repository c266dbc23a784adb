// collopt %s -t mpi4py
// A name that is none in Python.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @"my function"(%x: !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.all_reduce %x over <data> : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[8]>
    func.return %y : !coll.dist<f32[8]>
  }
}
