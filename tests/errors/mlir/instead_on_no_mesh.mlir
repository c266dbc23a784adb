// collopt %s
// A function on a mesh takes the place of one that is on none.
builtin.module {
  machine.machine @box levels [#machine.level<"node", #builtin.int<2>, "", #machine.number<8000000000.0>, #machine.number<2.0e-05>, "switch">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<2>, [#machine.factor<"node", #builtin.int<2>>]>]
  func.func @f(%x: i32) -> i32 {
    func.return %x : i32
  }
  func.func @f_2(%x: i32) -> i32 attributes {coll.mesh = @m, coll.for = @f, coll.from = 2 : i64} {
    func.return %x : i32
  }
}
