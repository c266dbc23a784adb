// collopt %s
// A text that does not parse.
builtin.module {
  func.func @f( {
}
