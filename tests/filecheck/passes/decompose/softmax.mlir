// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// A softmax over a weight's columns too: its parts are a maximum, a sum and a division.

// CHECK:      [[X:%.*]] = "aten.mm"
// CHECK-NEXT: [[MAX:%.*]] = "aten.amax"([[X]])
// CHECK-NEXT: [[D:%.*]] = "aten.sub.Tensor"([[X]], [[MAX]])
// CHECK-NEXT: [[E:%.*]] = "aten.exp"([[D]])
// CHECK-NEXT: [[SUM:%.*]] = "aten.sum.dim_IntList"([[E]])
// CHECK-NEXT: [[Y:%.*]] = "aten.div.Tensor"([[E]], [[SUM]])
// CHECK-NEXT: func.return [[Y]]
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %y = "aten._softmax"(%h) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x10xf32>) -> tensor<6x10xf32>
  func.return %y : tensor<6x10xf32>
}
