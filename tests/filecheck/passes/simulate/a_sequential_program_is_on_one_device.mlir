// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// A program without placement runs on device 0.

// CHECK:      func.func @main(%x: tensor<4xf32>
// CHECK-SAME: attributes {dist.simulated_picoseconds = 1000000 : i64, dist.peak_memory_bytes = array<i64: 32>}
// CHECK-NEXT: [[A:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: func.return [[A]]

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %a : tensor<4xf32>
}
