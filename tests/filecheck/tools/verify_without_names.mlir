// RUN: distir-opt %s -p 'dtp-parallelize{dp=2}' > %t.mlir
// RUN: distir verify %s %t.mlir | filecheck %s
// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 grouped=true}' > %t.mlir
// RUN: distir verify %s %t.mlir | filecheck %s

// Parts of a value that the program does not name are called as it is there: by that they are told to be of one.

// CHECK: result0 agrees
// CHECK-NEXT: result1 agrees
// CHECK-NEXT: every output agrees (2)
func.func @main(%x: tensor<4x6xf32>, %0: tensor<6x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %y = "onnx.MatMul"(%x, %0) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %z = "onnx.Relu"(%y) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y, %z : tensor<4x6xf32>, tensor<4x6xf32>
}
