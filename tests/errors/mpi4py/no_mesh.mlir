// collopt %s -t mpi4py
// A function without a mesh.
builtin.module {
  func.func @f() {
    func.return
  }
}
