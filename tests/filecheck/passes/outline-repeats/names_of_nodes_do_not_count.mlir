// RUN: distir-opt %s -p outline-repeats | filecheck %s

// What ONNX calls a node makes no other layer.

// CHECK:      [[V0:%.*]], [[V1:%.*]] = func.call @layer(%x)
// CHECK-NEXT: %2, [[V3:%.*]] = func.call @layer([[V1]])
// CHECK-NEXT: func.return [[V0]], [[V3]]

func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = "onnx.Relu"(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = "onnx.Neg"(%0) {onnx_node_name = "first"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = "onnx.Relu"(%1) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = "onnx.Neg"(%2) {onnx_node_name = "second"} : (tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %0, %3 : tensor<8x8xf32>, tensor<8x8xf32>
}
