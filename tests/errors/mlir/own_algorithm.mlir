// collopt -p localize %s
// A declared algorithm that is none: it is proven where it is lowered, too.
builtin.module {
  machine.machine @quad levels [#machine.level<level_name = "node", size = #builtin.int<4>, size_from = "", port = #machine.number<1000000000.0>, latency = #machine.number<2.0e-05>, kind = "switch">]
  machine.mesh @m on @quad axes [#machine.axis<axis_name = "d", size = #builtin.int<4>, factors = [#machine.factor<level = "node", size = #builtin.int<4>>]>]
  coll.declared @back <"@back", "all_gather", "algorithm @back all_gather(rank of ranks) {\0A  for step = 0 to ranks - 3 {\0A    send block (rank + step) % ranks to (rank - 1) % ranks\0A  }\0A}">
  func.func @f(%x: !coll.dist<f32[8@d.node]> {coll.name = "x"}) -> (!coll.dist<f32[8]> {coll.name = "y"}) attributes {coll.mesh = @m} {
    %y = coll.all_gather %x over <d.node> dim 0 using #coll.algorithm<"@back", "all_gather", "algorithm @back all_gather(rank of ranks) {\0A  for step = 0 to ranks - 3 {\0A    send block (rank + step) % ranks to (rank - 1) % ranks\0A  }\0A}"> : !coll.dist<f32[8@d.node]> -> !coll.dist<f32[8]>
    func.return %y : !coll.dist<f32[8]>
  }
}
