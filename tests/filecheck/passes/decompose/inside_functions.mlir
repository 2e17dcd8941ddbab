// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// In functions as in the entry, where the dims of weights come from the calls.

// CHECK:      [[Y:%.*]] = func.call @head(%x, %w)
// CHECK-NEXT: func.return [[Y]]
// CHECK:      func.func private @head
// CHECK-NOT:  aten._log_softmax
// CHECK:      [[X:%.*]] = "aten.mm"
// CHECK-NEXT: "aten.amax"([[X]])
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x10xf32> {dist.name = "w", dist.role = "parameter"}) -> (tensor<6x10xf32> {dist.name = "y", dist.role = "output"}) {
  %y = func.call @head(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  func.return %y : tensor<6x10xf32>
}
func.func private @head(%x: tensor<6x8xf32>, %w: tensor<8x10xf32>) -> tensor<6x10xf32> {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x10xf32>) -> tensor<6x10xf32>
  %y = "aten._log_softmax"(%h) <{dim = -1 : i64, half_to_float = false}> : (tensor<6x10xf32>) -> tensor<6x10xf32>
  func.return %y : tensor<6x10xf32>
}
