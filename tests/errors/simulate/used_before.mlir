// collopt %s -t simulate
// Two steps that wait for each other.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.add %x, %z : !coll.dist<f32[8]>, !coll.dist<f32[8]> -> !coll.dist<f32[8]>
    %z = coll.add %y, %x : !coll.dist<f32[8]>, !coll.dist<f32[8]> -> !coll.dist<f32[8]>
    func.return %z : !coll.dist<f32[8]>
  }
}
