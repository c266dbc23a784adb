// collopt %s --no-implicit-module
// Without an implicit module there must be one.
func.func @f() {
  func.return
}
