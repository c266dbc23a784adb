// collopt %s
// A distributed type with a dtype that there is not.
builtin.module {
  func.func @a(%x: !coll.dist<f8[8]>) {
    func.return
  }
}
