// RUN: distir-opt %s -p example-fuse --split-input-file | filecheck %s

// A norm and the product that uses it are one operation.
// CHECK-LABEL: @fused
// CHECK-NEXT: [[Y:%.*]] = example.norm_matmul %x, %s, %w epsilon 5.000000e-01 {onnx_node_name = "up"}
// CHECK-NEXT: func.return [[Y]]
func.func @fused(%x: tensor<8x16xf32>, %s: tensor<16xf32>, %w: tensor<16x4xf32>) -> tensor<8x4xf32> {
  %n = "onnx.RMSNormalization"(%x, %s) <{axis = -1 : si64, epsilon = 5.000000e-01 : f32}> : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %y = "onnx.MatMul"(%n, %w) {onnx_node_name = "up"} : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}

// -----

// The norm is used twice: it stays.
// CHECK-LABEL: @twice
// CHECK: onnx.RMSNormalization
// CHECK: onnx.MatMul
func.func @twice(%x: tensor<8x16xf32>, %s: tensor<16xf32>, %w: tensor<16x16xf32>) -> tensor<8x16xf32> {
  %n = "onnx.RMSNormalization"(%x, %s) <{axis = -1 : si64}> : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %y = "onnx.MatMul"(%n, %w) : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %z = "onnx.Add"(%n, %y) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  func.return %z : tensor<8x16xf32>
}
