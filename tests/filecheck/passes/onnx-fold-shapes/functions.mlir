// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

// Functions are folded by what holds for all their calls.
func.func @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {
  %0 = func.call @flat(%x) : (tensor<4x8xf32>) -> tensor<?x?xf32>
  %1 = func.call @flat(%y) : (tensor<4x8xf32>) -> tensor<?x?xf32>
  func.return %0, %1 : tensor<?x?xf32>, tensor<?x?xf32>
}
func.func @flat(%x: tensor<4x8xf32>) -> tensor<?x?xf32> {
  %shape = "onnx.Shape"(%x) : (tensor<4x8xf32>) -> tensor<2xi64>
  %0 = "onnx.Reshape"(%x, %shape) : (tensor<4x8xf32>, tensor<2xi64>) -> tensor<?x?xf32>
  func.return %0 : tensor<?x?xf32>
}

// CHECK:      [[X:%.*]] = func.call @flat(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[Y:%.*]] = func.call @flat(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: func.return [[X]], [[Y]]
// CHECK:      func.func @flat(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
// CHECK-NEXT:   [[SHAPE:%.*]] = onnx.Constant dense<[4, 8]> : tensor<2xi64>
// CHECK-NEXT:   "onnx.Reshape"(%x, [[SHAPE]])
