// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// A send begins when both ends are free.

// CHECK:      func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>
// CHECK-SAME: attributes {dist.simulated_picoseconds = 1500000 : i64, dist.peak_memory_bytes = array<i64: 16, 48>}
// CHECK-NEXT: [[A:%.*]] = "aten.relu"(%y)
// CHECK-NEXT: [[B:%.*]] = dist.send %x to 1
// CHECK-NEXT: func.return [[A]], [[B]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>, %y: tensor<4xf32, #dist.on<1>>) -> (tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>) {
  %a = "aten.relu"(%y) : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  %b = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %a, %b : tensor<4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>
}
