// collopt %s
// Operations that are ill typed, each with its own error, and a note where a state comes from.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f32[8] partial(sum: data)>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.reduce_scatter %x over <data> dim 0 : !coll.dist<f32[8] partial(sum: data)> -> !coll.dist<f32[8@data]>
    %z = coll.all_reduce %y over <data> : !coll.dist<f32[8@data]> -> !coll.dist<f32[8]>
    func.return %z : !coll.dist<f32[8]>
  }
  func.func @g(%x: !coll.dist<f32[8]>) -> !coll.dist<f32[8]> attributes {coll.mesh = @m} {
    %y = coll.keep_root %x over <data, data> : !coll.dist<f32[8]> -> !coll.dist<f32[8] root(data)>
    %z = coll.cast %x to "f8" : !coll.dist<f32[8]> -> !coll.dist<f32[8]>
    %w = coll.concat dim 0 : -> !coll.dist<f32[8]>
    func.return %x : !coll.dist<f32[8]>
  }
}
