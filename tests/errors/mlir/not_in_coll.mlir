// collopt %s
// An operation of xDSL that .coll has no form for.
builtin.module {
  func.func @f() {
    %0 = arith.constant 1 : i32
    func.return
  }
}
