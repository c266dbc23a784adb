// collopt %s
// A type that is partial over nothing.
builtin.module {
  func.func @a(%x: !coll.dist<f32[8] partial(sum: )>) {
    func.return
  }
}
