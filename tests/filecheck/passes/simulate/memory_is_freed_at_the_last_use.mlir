// RUN: distir-opt %s -p 'simulate{machine="%S/../Inputs/unit.toml"}' | filecheck %s

// The peak has the arguments, and two of the three values that are made.

// CHECK:      func.func @main(%x: tensor<4xf32, #dist.on<0>>
// CHECK-SAME: attributes {dist.simulated_picoseconds = 3000000 : i64, dist.peak_memory_bytes = array<i64: 48>}
// CHECK-NEXT: [[A:%.*]] = "aten.relu"(%x)
// CHECK-NEXT: [[B:%.*]] = "aten.relu"([[A]])
// CHECK-NEXT: [[C:%.*]] = "aten.relu"([[B]])
// CHECK-NEXT: func.return [[C]]

func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>> {
  %a = "aten.relu"(%x) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %b = "aten.relu"(%a) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  %c = "aten.relu"(%b) : (tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<0>>
  func.return %c : tensor<4xf32, #dist.on<0>>
}
