// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// What a maximum is taken over leaves partial maxima.

// CHECK:      func.func @main(%x: tensor<4x6xf32>
// CHECK-NEXT: [[Y:%.*]] = "aten.amax"(%x) <{dim = array<i64: 1>, keepdim = false}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: reduce(max)}, partial = [max: 0 -> 0], found = exact>}
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %y = "aten.amax"(%x) <{dim = array<i64: 1>, keepdim = false}> : (tensor<4x6xf32>) -> tensor<4xf32>
  func.return %y : tensor<4xf32>
}
