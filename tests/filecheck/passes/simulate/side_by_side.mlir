// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// Two devices with nothing between them take as long as one.

// CHECK:      func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>
// CHECK-SAME: attributes {dist.simulated_picoseconds = 1000000 : i64, dist.peak_memory_bytes = array<i64: 32, 32>}
// CHECK-NEXT: [[A:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[B:%.*]] = "aten.relu"(%y)
// CHECK-NEXT: func.return [[A]], [[B]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>) {
  %a = "aten.relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %b = "aten.relu"(%y) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  func.return %a, %b : tensor<4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<1>>
}
