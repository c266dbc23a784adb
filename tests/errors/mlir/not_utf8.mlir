// collopt %s
// A text in Latin-1.
builtin.module {
  func.func @f() attributes {größe} { func.return }
}
