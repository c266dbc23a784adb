// collopt %s
// A distributed type with a reduction that there is not.
builtin.module {
  func.func @a(%x: !coll.dist<f32[8] partial(xor: data)>) {
    func.return
  }
}
