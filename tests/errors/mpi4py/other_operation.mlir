// collopt %s -t mpi4py
// An operation that is no collective.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %0 = arith.constant 1 : i32
    func.return %x : !coll.dist<f32[8]>
  }
}
