// collopt %s
// A value that is not defined.
builtin.module {
  func.func @f(%x: !coll.dist<f32[8]>) {
    %y = coll.scale %z by <2.0> : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
    func.return
  }
}
