// RUN: distir-opt %s -p shardcombine-annotate | filecheck %s

// Every dim of an elementwise operation can be cut.

// CHECK:      func.func @main(%x: tensor<4x6xf32>
// CHECK-NEXT: [[Y:%.*]] = "aten.relu"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>}
// CHECK-NEXT: func.return [[Y]]

func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "aten.relu"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
