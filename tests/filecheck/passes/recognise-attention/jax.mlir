// RUN: distir-opt %s -p recognise-attention | filecheck %s
// REQUIRES: jax

// A softmax of its parts; the product's dims are in another order.

// CHECK: attention.forward
// CHECK-NOT: jax.exp
// CHECK: jax.transpose
func.func @main(%q: tensor<2x6x3x8xf32>, %k: tensor<2x7x3x8xf32>, %v: tensor<2x7x3x8xf32>) -> tensor<2x3x8x6xf32> {
  %s = "jax.dot_general"(%q, %k) <{dimension_numbers = [[[3 : i64], [3 : i64]], [[0 : i64, 2 : i64], [0 : i64, 2 : i64]]], precision, preferred_element_type = f32, out_sharding}> : (tensor<2x6x3x8xf32>, tensor<2x7x3x8xf32>) -> tensor<2x3x6x7xf32>
  %m = "jax.reduce_max"(%s) <{axes = [3 : i64]}> : (tensor<2x3x6x7xf32>) -> tensor<2x3x6xf32>
  %mb = "jax.broadcast_in_dim"(%m) <{shape = [2 : i64, 3 : i64, 6 : i64, 1 : i64], broadcast_dimensions = [0 : i64, 1 : i64, 2 : i64], sharding}> : (tensor<2x3x6xf32>) -> tensor<2x3x6x1xf32>
  %d = "jax.sub"(%s, %mb) : (tensor<2x3x6x7xf32>, tensor<2x3x6x1xf32>) -> tensor<2x3x6x7xf32>
  %e = "jax.exp"(%d) <{accuracy}> : (tensor<2x3x6x7xf32>) -> tensor<2x3x6x7xf32>
  %t = "jax.reduce_sum"(%e) <{axes = [3 : i64], out_sharding}> : (tensor<2x3x6x7xf32>) -> tensor<2x3x6xf32>
  %tb = "jax.broadcast_in_dim"(%t) <{shape = [2 : i64, 3 : i64, 6 : i64, 1 : i64], broadcast_dimensions = [0 : i64, 1 : i64, 2 : i64], sharding}> : (tensor<2x3x6xf32>) -> tensor<2x3x6x1xf32>
  %p = "jax.div"(%e, %tb) : (tensor<2x3x6x7xf32>, tensor<2x3x6x1xf32>) -> tensor<2x3x6x7xf32>
  %o = "jax.dot_general"(%v, %p) <{dimension_numbers = [[[1 : i64], [3 : i64]], [[0 : i64, 2 : i64], [0 : i64, 1 : i64]]], precision, preferred_element_type = f32, out_sharding}> : (tensor<2x7x3x8xf32>, tensor<2x3x6x7xf32>) -> tensor<2x3x8x6xf32>
  func.return %o : tensor<2x3x8x6xf32>
}
