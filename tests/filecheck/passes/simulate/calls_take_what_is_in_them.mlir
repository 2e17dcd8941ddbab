// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// A call takes the time of its function, on the devices where it is placed.

// CHECK:      func.func @main(%x: tensor<4xf32, #dist.on<1>>
// CHECK-SAME: attributes {dist.simulated_picoseconds = 2000000 : i64, dist.peak_memory_bytes = array<i64: 0, 48>}
// CHECK-NEXT: [[A:%.*]] = dist.call @f(%x) on [1]
// CHECK-NEXT: func.return [[A]]
// CHECK:      func.func private @f(%x: tensor<4xf32>
// CHECK-NEXT: [[A:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[B:%.*]] = "aten.relu"([[A]])
// CHECK-NEXT: func.return [[B]]

func.func @main(%x: tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>> {
  %a = dist.call @f(%x) on [1] : (tensor<4xf32, #dist.on<1>>) -> tensor<4xf32, #dist.on<1>>
  func.return %a : tensor<4xf32, #dist.on<1>>
}
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %b = "aten.relu"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  func.return %b : tensor<4xf32>
}
