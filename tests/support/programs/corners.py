"""Operations of models at what random operands do not meet: signs of zeros, equal elements,
positions behind the last, windows of negative numbers, gains in another order of dimensions,
numbers that are none, labels of 8 bits of more classes, equal steps on other types."""

TEXT = """
machine @k { level a[1] { port = 1 GB/s, latency = 1 us } }
mesh @m on @k { x = a:1 }
func @inverse(%x: f32[2]) -> (f32[2], f32[2]) on @m {
  %z = constant value -0.0 to f32[2]
  %o = constant value 1 to f32[2]
  %y = div %o, %z
  %g = gelu %x
  return %y, %g
}
func @turned(%x: f32[2, 3, 4], %gain: f32[3, 4, 2]) -> f32[2, 3, 4] on @m {
  %y = rms_norm %x, %gain dims [1, 2, 0] eps 1e-5
  return %y
}
func @below(%x: f32[1, 4, 2]) -> f32[1, 5, 2] on @m {
  %e = exp %x
  %n = neg %e
  %y = max_pool %n window [2] stride [1] padding [1]
  return %y
}
func @added(%x: f32[1, 3, 2], %w: f32[4, 2, 2]) -> f32[1, 7, 2] on @m {
  %y = conv_transpose %x, %w stride [2] padding [1] to f32[1, 7, 2]
  return %y
}
func @logarithms(%x: f16[4, 64]) -> f16[4, 64] on @m {
  %y = log_softmax %x dims [1]
  return %y
}
func @wide(%x: f32[2, 300], %y: f64[2, 3]) -> (f32[300], f32[2, 300], f64[2, 3]) on @m {
  %s = sum %x dims [0]
  %n = neg %x
  %o = neg %y
  return %s, %n, %o
}
func @first(%x: f32[2, 4]) -> i32[2, 2] on @m {
  %y = top_k_indices %x k 2 dim 1
  return %y
}
func @behind(%x: f32[3, 2]) -> (f32[5, 2], i32[2, 2]) on @m {
  %i = iota dim 0 to i32[5]
  %y = take %x, %i dim 0
  %o = constant value 1 to f32[2, 4]
  %t = top_k_indices %o k 2 dim 1
  return %y, %t
}
func @unknown(%x: f32[2, 4]) -> (f32[2], f32[2]) on @m {
  %i = iota dim 0 to f32[4]
  %c = cos %i
  %r = sqrt %c
  %b = add %x, %r
  %y = max %b dims [1]
  %z = min %b dims [1]
  return %y, %z
}
func @largest(%g: f32[1, 2, 2]) -> f32[1, 4, 2] on @m {
  %o = constant value 1 to f32[1, 4, 2]
  %y = max_pool_transpose %g, %o window [2] stride [2] padding [0]
  return %y
}
func @labels() -> f32[4, 300] on @m {
  %i = iota dim 0 to i8[4]
  %y = one_hot %i to f32[4, 300]
  return %y
}
func @counted() -> (f32[4], f64[4]) on @m {
  %x = iota dim 0 to f32[4]
  %y = iota dim 0 to f64[4]
  return %x, %y
}
"""

ON_FOUR = """
machine @quad { level gpu[4] { port = 1 GB/s, latency = 1 us } }
mesh @four on @quad { d = gpu:4 }
func @turned_ring(%x: f32[8@d]) -> f32[8@d] on @four {
  %y = shift %x over d by 1
  return %y
}
func @scattered(%x: f32[8] partial(avg: d)) -> f32[8@d] on @four {
  %y = reduce_scatter %x over d dim 0
  return %y
}
func @short(%x: f32[600@d], %i: i8[4]) -> f32[4] partial(sum: d) on @four {
  %y = take %x, %i dim 0
  return %y
}
"""

UNEVEN = """
machine @quad { level node[2] { port = 8 GB/s, latency = 20 us }
                level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @quad { data = node:2 weights [1, 2], model = gpu:2 }
func @taken(%x: f32[12@(data, model), 4], %at: i32[5])
    -> f32[5, 4] partial(sum: data, model) on @m {
  %y = take %x, %at dim 0
  return %y
}
func @marked(%at: i32[5]) -> f32[5, 12@(model, data)] on @m {
  %y = one_hot %at to f32[5, 12@(model, data)]
  return %y
}
func @added(%x: f32[5, 4], %at: i32[5]) -> f32[6@data, 4] on @m {
  %y = take_transpose %x, %at dim 0 to f32[6@data, 4]
  return %y
}
func @counted() -> (f32[6@data], i32[4, 6@data, 2]) on @m {
  %x = iota dim 0 to f32[6@data]
  %y = iota dim 1 to i32[4, 6@data, 2]
  return %x, %y
}
"""
