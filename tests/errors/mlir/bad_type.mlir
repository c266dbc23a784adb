// collopt %s
// Types that a mesh cannot have: an unknown axis, an axis used twice, shards that do not divide.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @a(%x: !coll.dist<f32[8@model]>) -> !coll.dist<f32[8@model]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[8@model]>
  }
  func.func @b(%x: !coll.dist<f32[8@data] root(data)>) -> !coll.dist<f32[8@data] root(data)> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[8@data] root(data)>
  }
  func.func @c(%x: !coll.dist<f32[6@data]>) -> !coll.dist<f32[6@data]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[6@data]>
  }
  func.func @d(%x: !coll.dist<f32[0]>) -> !coll.dist<f32[0]> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<f32[0]>
  }
  func.func @e(%x: !coll.dist<i32[8] partial(avg: data)>) -> !coll.dist<i32[8] partial(avg: data)> attributes {coll.mesh = @m} {
    func.return %x : !coll.dist<i32[8] partial(avg: data)>
  }
}
