// collopt %s
// A dimension index that no i64 holds.
builtin.module {
  func.func @f(%x: !coll.dist<f32[8]>) {
    %y = coll.merge %x dim 99999999999999999999999999 : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
    func.return
  }
}
