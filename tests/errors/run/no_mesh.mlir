// collrun %s
// A function without a mesh.
builtin.module {
  func.func @f() {
    func.return
  }
}
