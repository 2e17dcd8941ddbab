// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

// A known condition selects its branch, and what the branch computes is folded in turn.
func.func @main(%x: tensor<4x8xf32>) -> tensor<?x?xf32> {
  %shape = "onnx.Shape"(%x) : (tensor<4x8xf32>) -> tensor<2xi64>
  %limit = onnx.Constant dense<[4, 8]> : tensor<2xi64>
  %equal = "onnx.Equal"(%shape, %limit) : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi1>
  %axis = onnx.Constant dense<0> : tensor<i64>
  %condition = "onnx.Gather"(%equal, %axis) : (tensor<2xi1>, tensor<i64>) -> tensor<i1>
  %y = "onnx.If"(%condition) ({
    onnx.Yield %x : tensor<4x8xf32>
  }, {
    %t = "onnx.Transpose"(%x) <{perm = [1, 0]}> : (tensor<4x8xf32>) -> tensor<?x?xf32>
    onnx.Yield %t : tensor<?x?xf32>
  }) : (tensor<i1>) -> tensor<?x?xf32>
  func.return %y : tensor<?x?xf32>
}

// CHECK:      func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
// CHECK-NEXT:   [[T:%.*]] = "onnx.Transpose"(%x) <{perm = [1 : i64, 0 : i64]}> : (tensor<4x8xf32>) -> tensor<8x4xf32>
// CHECK-NEXT:   func.return [[T]] : tensor<8x4xf32>
