// collopt %s
// A collective that is in no function.
builtin.module {
  %x = "test.op"() : () -> !coll.dist<f32[8] partial(sum: data)>
  %y = coll.all_reduce %x over <data> : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[8]>
}
