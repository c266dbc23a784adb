// collopt %s
// A function with a result that is not distributed has no form in .coll.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f() -> i32 attributes {coll.mesh = @m} {
    %0 = arith.constant 1 : i32
    func.return %0 : i32
  }
}
