// RUN: distir-opt %s -p check-module --split-input-file --verify-diagnostics | filecheck %s
// REQUIRES: torch
// REQUIRES: onnx

// Placed or not, a shard or the whole.
func.func @fits(%x: tensor<4x8xf32, #dist.on<1>>, %w: tensor<8x?xf32, #dist.on<1>>, %e: tensor<4x1xf32, #dist.on<1>>) {
  %y = "aten.mul.Tensor"(%x, %e) : (tensor<4x8xf32, #dist.on<1>>, tensor<4x1xf32, #dist.on<1>>) -> tensor<4x8xf32, #dist.on<1>>
  %z = "onnx.MatMul"(%y, %w) : (tensor<4x8xf32, #dist.on<1>>, tensor<8x?xf32, #dist.on<1>>) -> tensor<4x6xf32, #dist.on<1>>
  func.return
}
// CHECK: func.func @fits

// -----

func.func @operands(%x: tensor<4x8xf32>, %w: tensor<9x8xf32>) {
  %y = "aten.mm"(%x, %w) : (tensor<4x8xf32>, tensor<9x8xf32>) -> tensor<4x8xf32>
  func.return
}
// CHECK: aten.mm cannot work on tensor<4x8xf32>, tensor<9x8xf32>: a and b must have same reduction dim, but got [4, 8] X [9, 8].

// -----

func.func @extent(%x: tensor<4x8xf32>, %w: tensor<8x9xf32>) {
  %y = "aten.mm"(%x, %w) : (tensor<4x8xf32>, tensor<8x9xf32>) -> tensor<4x8xf32>
  func.return
}
// CHECK: aten.mm: result 0: expected tensor<4x9xf32>, got tensor<4x8xf32>

// -----

// What a constant says counts.
func.func @target(%x: tensor<4x6xf32>) {
  %s = "onnx.Constant"() <{value = #onnx.tensor<dense<[8, 3]> : tensor<2xi64>>}> : () -> tensor<2xi64>
  %y = "onnx.Reshape"(%x, %s) : (tensor<4x6xf32>, tensor<2xi64>) -> tensor<6x4xf32>
  func.return
}
// CHECK: onnx.Reshape: result 0: expected tensor<8x3xf32>, got tensor<6x4xf32>


// -----

// Of an operation without a meaning nothing is known.
func.func @opaque(%x: tensor<4x6xf32>) {
  %y = "test.op"(%x) : (tensor<4x6xf32>) -> tensor<5xf64>
  func.return
}
// CHECK: "test.op"
