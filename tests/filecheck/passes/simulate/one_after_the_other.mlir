// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// A device runs its operations in program order: their times add up.

// CHECK:      func.func @main(%x: tensor<4xf32, #dist.on<0>>
// CHECK-SAME: attributes {dist.simulated_picoseconds = 2000000 : i64, dist.peak_memory_bytes = array<i64: 48>}
// CHECK-NEXT: [[A:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[B:%.*]] = "aten.tanh"([[A]])
// CHECK-NEXT: func.return [[B]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>> {
  %a = "aten.relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %b = "aten.tanh"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return %b : tensor<4xf32, #dist.on<0>>
}
