// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// Softmax's own dim has to be whole.

// CHECK:      func.func @main(%x: tensor<4x6xf32>
// CHECK-NEXT: [[Y:%.*]] = "aten._softmax"(%x) <{dim = 1 : i64, half_to_float = false}> {dist.rule = #dist.rule<[S1, _] -> {S1: gather(0)}, found = exact>}
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "aten._softmax"(%x) <{dim = 1 : i64, half_to_float = false}> : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
