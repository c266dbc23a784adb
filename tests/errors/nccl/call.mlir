// collopt %s -t nccl
// A call of another function.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @g(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[8]>
  }
  func.func @f(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = func.call @g(%x) : (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>
    func.return %y : !coll.dist<f32[8]>
  }
}
