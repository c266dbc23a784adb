// collopt %s
// A function on a mesh that there is not.
builtin.module {
  func.func @f(%x: !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.all_reduce %x over <data> : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[8]>
    func.return %y : !coll.dist<f32[8]>
  }
}
