// collopt %s
// A machine without its levels: what stands on it is not reported as well.
builtin.module {
  "machine.machine"() <{sym_name = "box"}> : () -> ()
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[8]>
  }
}
