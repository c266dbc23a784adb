// collopt %s
// A function on distributed tensors that names no mesh.
builtin.module {
  func.func @f(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> {
    func.return %x : !coll.dist<f32[8]>
  }
}
