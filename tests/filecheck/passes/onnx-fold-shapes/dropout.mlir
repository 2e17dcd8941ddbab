// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

// A dropout that is not in training is nothing; one that may be, or whose mask is used, stays.
func.func @main(%x: tensor<4x8xf32>, %mode: tensor<i1>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xi1>) {
  %none = "onnx.NoValue"() <{value}> : () -> none
  %half = onnx.Constant dense<0.5> : tensor<f32>
  %false = onnx.Constant dense<false> : tensor<i1>
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b, %m = "onnx.Dropout"(%a, %half, %false) : (tensor<4x8xf32>, tensor<f32>, tensor<i1>) -> (tensor<4x8xf32>, tensor<4x8xi1>)
  %c, %n = "onnx.Dropout"(%a, %half, %mode) : (tensor<4x8xf32>, tensor<f32>, tensor<i1>) -> (tensor<4x8xf32>, tensor<4x8xi1>)
  %d, %o = "onnx.Dropout"(%a, %half, %none) : (tensor<4x8xf32>, tensor<f32>, none) -> (tensor<4x8xf32>, tensor<4x8xi1>)
  func.return %b, %c, %d, %o : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xi1>
}

// CHECK:      [[A:%.*]] = "onnx.Relu"(%x)
// CHECK-NEXT: [[C:%.*]], %n = "onnx.Dropout"([[A]], %half, %mode)
// CHECK-NEXT: [[D:%.*]], [[O:%.*]] = "onnx.Dropout"([[A]], %half, %none)
// CHECK-NEXT: func.return [[A]], [[C]], [[D]], [[O]]
