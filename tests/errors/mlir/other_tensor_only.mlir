// collopt %s
// A function on tensors that are not distributed has no form in .coll.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> attributes {coll.mesh = @m} {
    func.return %x : tensor<8xf32>
  }
}
