// collopt %s
// The attributes of a function that takes the place of another: one alone, and of other types.
builtin.module {
  machine.machine @box levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<8000000000.0>, #machine.number<2.0e-05>, "switch">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<2>, [#machine.factor<"node", #builtin.int<2>>]>]
  func.func @f(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[8]>
  }
  func.func @f_2(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m, coll.for = @f} {
    func.return %x : !coll.dist<f32[8]>
  }
  func.func @f_3(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m, coll.from = 2 : i64} {
    func.return %x : !coll.dist<f32[8]>
  }
  func.func @f_4(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m, coll.for = "f", coll.from = 2 : i64} {
    func.return %x : !coll.dist<f32[8]>
  }
  func.func @f_5(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m, coll.for = @f, coll.from = 2.5 : f32} {
    func.return %x : !coll.dist<f32[8]>
  }
  func.func @f_6(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m, coll.for = @f, coll.from = 100000000000000000000 : i128} {
    func.return %x : !coll.dist<f32[8]>
  }
}
