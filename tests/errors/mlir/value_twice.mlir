// collopt %s
// A value that is defined twice.
builtin.module {
  func.func @f(%x: !coll.dist<f32[8]>) {
    %x = coll.scale %x by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
    func.return
  }
}
