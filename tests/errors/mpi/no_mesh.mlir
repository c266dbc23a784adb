// collopt %s -t mpi
// A function without a mesh.
builtin.module {
  func.func @f() {
    func.return
  }
}
