// collopt %s
// An operation that the dialect does not have.
builtin.module {
  func.func @f() {
    "coll.all_recude"() : () -> ()
    func.return
  }
}
