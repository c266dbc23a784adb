// collopt %s
// A factor that is not a number a program could have.
builtin.module {
  machine.machine @box levels [#machine.level<"gpu", #builtin.int<4>, "", #machine.number<1.0e9>, #machine.number<1.0e-06>, "ring">]
  machine.mesh @m on @box axes [#machine.axis<"data", #builtin.int<4>, unit>]
  func.func @f(%x: !coll.dist<f64[8]>) -> !coll.dist<f64[8]> attributes {coll.mesh = @m} {
    %y = coll.scale %x by <1.0e999> : !coll.dist<f64[8]> -> !coll.dist<f64[8]>
    func.return %y : !coll.dist<f64[8]>
  }
}
