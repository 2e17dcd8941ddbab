// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// The logits' columns are those of a weight, so the softmax over them is its parts, of which the maximum and the sum are reduced.

// CHECK:      dist.decomposed = ""
// CHECK-LABEL: @main
// CHECK-NOT:  aten._log_softmax
// CHECK:      [[X:%.*]] = "aten.mm"
// CHECK-NEXT: [[MAX:%.*]] = "aten.amax"([[X]])
// CHECK-SAME:   S2: reduce(max)
// CHECK-NEXT: [[D:%.*]] = "aten.sub.Tensor"([[X]], [[MAX]])
// CHECK-NEXT: [[E:%.*]] = "aten.exp"([[D]])
// CHECK-NEXT: [[SUM:%.*]] = "aten.sum.dim_IntList"([[E]])
// CHECK-SAME:   S2: reduce(sum)
// CHECK-NEXT: [[LOG:%.*]] = "aten.log"([[SUM]])
// CHECK-NEXT: "aten.sub.Tensor"([[D]], [[LOG]])
// CHECK-SAME:   dist.module = "loss"
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %logits = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %logs = "aten._log_softmax"(%logits) <{dim = -1 : i64, half_to_float = false}> {dist.module = "loss"} : (tensor<6x10xf32>) -> tensor<6x10xf32>
  func.return %logs : tensor<6x10xf32>
}
