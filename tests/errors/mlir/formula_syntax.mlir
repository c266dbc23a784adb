// collopt %s
// A formula in MLIR that is not closed.
func.func @value(%x: !coll.dist<f32[{4 * (batch = 32}]>) {
  func.return
}
