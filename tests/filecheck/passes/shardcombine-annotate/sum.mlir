// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// What is summed over leaves partial sums.

// CHECK:      func.func @main(%x: tensor<4x6xf32>
// CHECK-NEXT: [[Y:%.*]] = "aten.sum.dim_IntList"(%x) <{dim = array<i64: 1>}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: reduce(sum)}, partial = [sum: 0 -> 0], found = exact>}
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %y = "aten.sum.dim_IntList"(%x) <{dim = array<i64: 1>}> : (tensor<4x6xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
