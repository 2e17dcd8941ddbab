// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// The logits' columns are those of a weight, so the softmax over them is its parts, of which the maximum and the sum are reduced; rows of
// scores have no dim of a weight.
// CHECK:      dist.decomposed = ""
// CHECK-LABEL: @main
// CHECK-NOT:  aten._log_softmax
// CHECK:      "aten.amax"
// CHECK-SAME:   S2: reduce(max)
// CHECK:      "aten.sub.Tensor"
// CHECK:      "aten.exp"
// CHECK:      "aten.sum.dim_IntList"
// CHECK-SAME:   S2: reduce(sum)
// CHECK:      "aten.log"
// CHECK:      %logs = "aten.sub.Tensor"
// CHECK-SAME:   dist.module = "loss"
// CHECK-NOT:  aten.amax
// CHECK:      "aten._softmax"
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}, tensor<6x6xf32> {dist.name = "z", dist.role = "output"}) {
  %logits = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %logs = "aten._log_softmax"(%logits) <{dim = -1 : i64, half_to_float = false}> {dist.module = "loss"} : (tensor<6x10xf32>) -> tensor<6x10xf32>
  %t = "aten.t"(%x) : (tensor<6x8xf32>) -> tensor<8x6xf32>
  %scores = "aten.mm"(%x, %t) : (tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<6x6xf32>
  %weights = "aten._softmax"(%scores) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %logs, %weights : tensor<6x10xf32>, tensor<6x6xf32>
}
