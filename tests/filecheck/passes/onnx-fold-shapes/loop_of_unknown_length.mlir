// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

// One that is not known stays one operation, which says so; the types in its graph are static.
func.func @main(%x: tensor<4x8xf32>, %n: tensor<i64>) -> tensor<?x?xf32> {
  %none = "onnx.NoValue"() <{value}> : () -> none
  %y = "onnx.Loop"(%n, %none, %x) ({
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %s: tensor<?x?xf32>):
    %t = "onnx.Add"(%s, %x) : (tensor<?x?xf32>, tensor<4x8xf32>) -> tensor<?x?xf32>
    onnx.Yield %c, %t : tensor<i1>, tensor<?x?xf32>
  }) : (tensor<i64>, none, tensor<4x8xf32>) -> tensor<?x?xf32>
  func.return %y : tensor<?x?xf32>
}

// CHECK:      %y = "onnx.Loop"(%n, %none, %x) ({
// CHECK-NEXT: ^bb0(%i: tensor<i64>, %c: tensor<i1>, %s: tensor<4x8xf32>):
// CHECK-NEXT:   %t = "onnx.Add"(%s, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK:      }) {onnx.opaque = "its trip count is not known"} : (tensor<i64>, none, tensor<4x8xf32>) -> tensor<4x8xf32>
