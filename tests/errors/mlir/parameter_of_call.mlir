// collopt %s
// The signature of a function that is called names a parameter that it has not.
builtin.module {
  machine.machine @box levels [#machine.level<level_name = "gpu", size = #builtin.int<2>, size_from = "", port = #machine.number<8000000000.0>, latency = #machine.number<2.0e-05>, kind = "switch">]
  machine.mesh @m on @box axes [#machine.axis<axis_name = "data", size = #builtin.int<2>, factors = [#machine.factor<level = "gpu", size = #builtin.int<2>>]>]
  func.func @g(%x: !coll.dist<f32[{m = 4}]> {coll.name = "x"}) -> (!coll.dist<f32[{n = 4}]> {coll.name = "r"}) attributes {coll.mesh = @m, coll.parameters = #coll.bindings<n = 4>} {
    %r = coll.scale %x by <2.0> : !coll.dist<f32[{m = 4}]> -> !coll.dist<f32[{n = 4}]>
    func.return %r : !coll.dist<f32[{n = 4}]>
  }
  func.func @f(%x: !coll.dist<f32[8]> {coll.name = "x"}) -> (!coll.dist<f32[8]> {coll.name = "r"}) attributes {coll.mesh = @m} {
    %r = coll.call @g at <n = 8>(%x) : (!coll.dist<f32[8]>) -> !coll.dist<f32[8]>
    func.return %r : !coll.dist<f32[8]>
  }
}
