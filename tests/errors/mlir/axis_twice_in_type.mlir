// collopt %s
// A distributed type that names a sub-axis twice.
builtin.module {
  func.func @a(%x: !coll.dist<f32[8] partial(sum: data, data)>) {
    func.return
  }
}
