// collopt %s -t torch
// A function without a mesh.
builtin.module {
  func.func @f() {
    func.return
  }
}
