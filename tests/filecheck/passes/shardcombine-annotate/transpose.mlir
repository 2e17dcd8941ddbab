// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// The dims of a transpose change places.

// CHECK:      func.func @main(%x: tensor<4x6xf32>
// CHECK-NEXT: [[Y:%.*]] = "aten.t"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(1), S2: gather(0)}, partial = [sum: 0 -> 0, max: 0 -> 0, min: 0 -> 0], found = exact>}
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
  %y = "aten.t"(%x) : (tensor<4x6xf32>) -> tensor<6x4xf32>
  func.return %y : tensor<6x4xf32>
}
