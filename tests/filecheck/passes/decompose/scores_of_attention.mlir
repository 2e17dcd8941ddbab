// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// Scores have no dim of a weight, so their softmax stays one kernel.

// CHECK-NOT: dist.decomposed
// CHECK-NOT: aten.amax
// CHECK:     "aten._softmax"
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<6x6xf32> {dist.name = "z", dist.role = "output"}) {
  %t = "aten.t"(%x) : (tensor<6x8xf32>) -> tensor<8x6xf32>
  %scores = "aten.mm"(%x, %t) : (tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<6x6xf32>
  %weights = "aten._softmax"(%scores) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %weights : tensor<6x6xf32>
}
